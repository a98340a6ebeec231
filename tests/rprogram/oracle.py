"""Is a plan safe? Decided by brute force from the definitions, as the judge of ``verify``.

Nothing here is shared with ``tvm_rammer.rprogram.verify``. Two oracles judge each other:
:func:`is_safe` closes happens-before as a boolean matrix and quantifies over all pairs of rTasks;
:func:`is_safe_by_enumeration` walks through every legal interleaving and watches the bytes.

The definitions
---------------
* Which bytes of a buffer a tile computes is unknown, so an rTask may read any byte of what its
  operator reads and write any byte of what its operator writes; rTasks of one operator are
  independent of each other by construction.
* A buffer has one producer, the operator that writes it. The value of an input or a constant is
  there from the start, and nobody may write it.
* A plan is safe if every tile runs exactly once, every wait is met in the end, rTasks of different
  operators that touch the same byte, one of them writing, are ordered by happens-before, and in
  every legal interleaving every byte that an rTask reads, and every byte of an output at the end,
  is the one that the producer of the buffer wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from tvm_rammer.rprogram import ALIGNMENT, Buffer, RProgram, RTask

Verdict = tuple[bool, str]
Matrix = NDArray[np.bool_]


def is_safe(program: RProgram) -> Verdict:
    """Whether ``program`` (up to some 2,000 rTasks) is safe, and if not one reason why not."""
    reason = malformed(program)
    if reason:
        return False, reason
    before = happens_before(program)
    if before.diagonal().any():
        return False, "cyclic happens-before"
    reason = _unordered(program, before) or _wrong_value(program, before)
    return not reason, reason


def malformed(program: RProgram) -> str:
    """What is wrong with ``program`` in any order of its rTasks, or an empty string."""
    return (
        _bad_place(program)
        or _bad_producer(program)
        or _bad_tiles(program)
        or next(_bad_waits(program), "")
    )


def _bad_place(program: RProgram) -> str:
    size = {"arena": program.arena_bytes, "constant": program.constant_bytes}
    for buffer in program.buffers:
        if buffer.space in size:
            if buffer.offset < 0 or buffer.offset + buffer.nbytes > size[buffer.space]:
                return f"{buffer.name} lies outside of the {buffer.space}"
            if buffer.offset % ALIGNMENT:
                return f"{buffer.name} is not aligned"
        elif buffer.offset:
            return f"{buffer.name} does not start where its tensor does"
    return ""


def _bad_producer(program: RProgram) -> str:
    written: set[int] = set()
    for number, operator in enumerate(program.operators):
        writes = program.writes(number)
        for position, argument in enumerate(operator.arguments):
            for other, second in enumerate(operator.arguments):
                mine, theirs = program.buffers[argument], program.buffers[second]
                if other != position and argument in writes and overlap(mine, theirs):
                    return f"{operator.name} writes {mine.name} over its own {theirs.name}"
        for buffer in set(writes):
            if program.buffers[buffer].space in ("input", "constant"):
                return f"{operator.name} writes {program.buffers[buffer].name}"
            if buffer in written:
                return f"{program.buffers[buffer].name} has two producers"
            written.add(buffer)
    return ""


def _bad_tiles(program: RProgram) -> str:
    runs = [np.zeros(program.kernel_of(op).num_tiles, int) for op in range(len(program.operators))]
    for _, _, task in program.tasks():
        if not 0 <= task.operator < len(program.operators):
            return f"there is no operator {task.operator}"
        if not 0 <= task.start < task.stop <= len(runs[task.operator]):
            return f"operator {task.operator} has no tiles {task.start} to {task.stop}"
        runs[task.operator][task.start : task.stop] += 1
    for number, times in enumerate(runs):
        if (times != 1).any():
            return f"operator {number} does not run every tile exactly once"
    return ""


def _bad_waits(program: RProgram) -> Iterator[str]:
    for _, _, task in program.tasks():
        for wait in task.waits:
            if not 0 <= wait.veu < program.num_veus:
                yield f"there is no vEU {wait.veu} to wait for"
            elif not 0 <= wait.count <= len(program.veus[wait.veu]):
                yield f"vEU {wait.veu} never completes {wait.count} rTasks"


def memory(buffer: Buffer) -> tuple[str, int]:
    """The arena, the pool of constants, or one input or output."""
    return buffer.space, 0 if buffer.space in ("arena", "constant") else buffer.index


def overlap(first: Buffer, second: Buffer) -> bool:
    """Whether two buffers have a byte in common."""
    if memory(first) != memory(second):
        return False
    start = max(first.offset, second.offset)
    return start < min(first.offset + first.nbytes, second.offset + second.nbytes)


def happens_before(program: RProgram) -> Matrix:
    """``[i, j]``: rTask ``i`` happens before ``j``, numbered as ``program.tasks()`` lists them."""
    number = {(veu, position): i for i, (veu, position, _) in enumerate(program.tasks())}
    direct = np.zeros((len(number), len(number)), bool)
    for veu, position, task in program.tasks():
        here = number[veu, position]
        for earlier in range(position):
            direct[number[veu, earlier], here] = True
        for wait in task.waits:
            for earlier in range(wait.count):
                direct[number[wait.veu, earlier], here] = True
    return _closure(direct)


def _closure(relation: Matrix) -> Matrix:
    """Warshall's transitive closure, eight columns to a byte."""
    size = len(relation)
    rows = np.packbits(relation, axis=1)
    for middle in range(size):
        byte, bit = divmod(middle, 8)
        reach = (rows[:, byte] >> (7 - bit)) & 1 == 1
        rows[reach] |= rows[middle]
    return np.unpackbits(rows, axis=1, count=size).astype(bool)


def _accesses(program: RProgram) -> tuple[Matrix, Matrix]:
    """``[i, b]``: rTask ``i`` may read a byte of buffer ``b``; the same for writing."""
    reads = np.zeros((program.num_tasks, len(program.buffers)), bool)
    writes = reads.copy()
    for i, (_, _, task) in enumerate(program.tasks()):
        reads[i, list(program.reads(task.operator))] = True
        writes[i, list(program.writes(task.operator))] = True
    return reads, writes


def _overlaps(program: RProgram) -> Matrix:
    """``[a, b]``: buffers ``a`` and ``b`` have a byte in common."""
    memories = sorted(set(map(memory, program.buffers)))
    place = np.array([memories.index(memory(buffer)) for buffer in program.buffers], int)
    start = np.array([buffer.offset for buffer in program.buffers], int)
    stop = np.array([buffer.offset + buffer.nbytes for buffer in program.buffers], int)
    first, last = np.maximum(start[:, None], start), np.minimum(stop[:, None], stop)
    return (place[:, None] == place) & (first < last)


def _meet(first: Matrix, second: Matrix) -> Matrix:
    """Composition of two relations (through floats, for which numpy has a fast product)."""
    return np.asarray(first.astype(np.float32) @ second.astype(np.float32) > 0)


def _unordered(program: RProgram, before: Matrix) -> str:
    """A pair of rTasks of different operators that race for a byte."""
    reads, writes = _accesses(program)
    owner = np.array([task.operator for _, _, task in program.tasks()], int)
    touched = _meet(reads | writes, _overlaps(program))
    race = _meet(writes, touched.T) & (owner[:, None] != owner) & ~(before | before.T)
    if race.any():
        first, second = np.argwhere(race)[0]
        return f"rTasks {first} and {second} race for a byte"
    return ""


def _wrong_value(program: RProgram, before: Matrix) -> str:
    """A reader, or an output at the end, that may find a byte of another producer."""
    reads, writes = _accesses(program)
    shared = _overlaps(program)
    for index, buffer in enumerate(program.buffers):
        if not buffer.nbytes or buffer.space in ("input", "constant"):
            continue
        producer = np.flatnonzero(writes[:, index])
        readers = np.flatnonzero(reads[:, index])
        if not producer.size and (readers.size or buffer.space == "output"):
            return f"nobody writes {buffer.name}"
        if not before[np.ix_(producer, readers)].all():
            return f"a reader of {buffer.name} does not come after all of its producer"
        others = shared[index].copy()
        others[index] = False
        intruders = np.flatnonzero(writes[:, others].any(axis=1))
        early = before[np.ix_(intruders, producer)].all(axis=1)
        late = before[np.ix_(readers, intruders)]
        if not (early | late).all():
            return f"a reader of {buffer.name} may find another value"
        if buffer.space == "output" and not early.all():
            return f"{buffer.name} may hold another value at the end"
    return ""


def is_safe_by_enumeration(program: RProgram) -> Verdict:
    """The same verdict from all legal interleavings: for at most about eight rTasks."""
    reason = malformed(program)
    if reason:
        return False, reason
    tasks = [task for _, _, task in program.tasks()]
    seen = np.zeros((len(tasks), len(tasks)), bool)
    worlds = list(_worlds(program))
    for order in _interleavings(program):
        if len(order) < len(tasks):
            return False, "an interleaving gets stuck"
        for position, earlier in enumerate(order):
            seen[earlier, order[position + 1 :]] = True
        for world in worlds:
            reason = _replay(program, [tasks[i] for i in order], *world)
            if reason:
                return False, reason
    for first, second in np.argwhere(seen & seen.T):
        if _conflict(program, tasks[first], tasks[second]):
            return False, f"rTasks {first} and {second} are seen in both orders"
    return True, ""


def _interleavings(program: RProgram) -> Iterator[list[int]]:
    """Every order in which the vEUs can complete their rTasks; a stuck one is shorter."""
    base = np.cumsum([0, *map(len, program.veus)])

    def walk(done: tuple[int, ...], order: list[int]) -> Iterator[list[int]]:
        stuck = True
        for veu, tasks in enumerate(program.veus):
            if done[veu] < len(tasks) and all(
                done[wait.veu] >= wait.count for wait in tasks[done[veu]].waits
            ):
                stuck = False
                after = (*done[:veu], done[veu] + 1, *done[veu + 1 :])
                yield from walk(after, [*order, int(base[veu]) + done[veu]])
        if stuck:
            yield order

    return walk((0,) * program.num_veus, [])


def _worlds(program: RProgram) -> Iterator[tuple[list[int], dict[int, RTask]]]:
    """Every byte with every choice of which rTask of each producer computes it.

    Yields the buffers that hold the byte, and for each of them the rTask that writes it. All bytes
    between two neighbouring ends of buffers are alike, so one of them stands for all.
    """
    for place in set(map(memory, program.buffers)):
        places = {
            number: (buffer.offset, buffer.offset + buffer.nbytes)
            for number, buffer in enumerate(program.buffers)
            if memory(buffer) == place
        }
        for byte, _ in pairwise(sorted({end for ends in places.values() for end in ends})):
            held = [number for number, (start, stop) in places.items() if start <= byte < stop]
            writers: dict[int, list[RTask]] = {}
            for _, _, task in program.tasks():
                for number in set(program.writes(task.operator)) & set(held):
                    writers.setdefault(number, []).append(task)
            for choice in product(*writers.values()):
                yield held, dict(zip(writers, choice, strict=True))


def _replay(
    program: RProgram, order: list[RTask], held: list[int], writer: dict[int, RTask]
) -> str:
    """Run ``order`` and watch one byte: which buffer's value does it hold?"""
    value: int | None = None
    given = {b for b in held if program.buffers[b].space in ("input", "constant")}
    for task in order:
        for buffer in set(program.reads(task.operator)) & set(held) - given:
            if value != buffer:
                return f"{program.operators[task.operator].name} reads a wrong byte"
        for buffer, owner in writer.items():
            if owner is task:
                value = buffer
    outputs = [b for b in held if program.buffers[b].space == "output"]
    return "a wrong byte at the end" if any(value != b for b in outputs) else ""


def _conflict(program: RProgram, first: RTask, second: RTask) -> bool:
    """Whether two rTasks of different operators may touch one byte, one of them writing."""
    return first.operator != second.operator and any(
        overlap(program.buffers[w], program.buffers[b])
        for writer, other in ((first, second), (second, first))
        for w in program.writes(writer.operator)
        for b in program.operators[other.operator].arguments
    )
