"""Is a plan safe? Decided by brute force from the definitions, as the judge of ``verify``.

Nothing here is shared with ``tvm_rammer.rprogram.verify``. Two oracles judge each other:
:func:`is_safe` closes happens-before as a boolean matrix and quantifies over all pairs of rTasks;
:func:`is_safe_by_enumeration` walks through every legal interleaving and watches the bytes.

The definitions
---------------
* Which bytes of a buffer a tile computes is unknown, so an rTask may read any byte of what its
  operator reads and write any byte of what its operator writes; rTasks of one operator are
  independent of each other by construction.
* A buffer has one producer, the operator that writes it, or every byte of it lies in a part that
  has one: parts of one buffer that are written have no byte in common. The value of an input or a
  constant is there from the start, and nobody may write it.
* A plan is safe if every tile runs exactly once, every wait is met in the end, rTasks of different
  operators that touch the same byte, one of them writing, are ordered by happens-before, and in
  every legal interleaving every byte that an rTask reads, and every byte of an output at the end,
  is the one that the producer of the buffer wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from tvm_rammer.rprogram import ALIGNMENT, RProgram, RTask, dtype_bytes

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
        if buffer.space == "part":
            continue
        if buffer.pitch:
            return f"{buffer.name} has a pitch and is no part"
        if buffer.space in size:
            if buffer.offset < 0 or buffer.offset + buffer.nbytes > size[buffer.space]:
                return f"{buffer.name} lies outside of the {buffer.space}"
            if buffer.offset % ALIGNMENT:
                return f"{buffer.name} is not aligned"
        elif buffer.offset:
            return f"{buffer.name} does not start where its tensor does"
    pitches: dict[int, int] = {}
    for number, buffer in enumerate(program.buffers):
        if buffer.space == "part":
            if _bad_part(program, number):
                return f"{buffer.name} is no part of a buffer"
            if pitches.setdefault(buffer.index, buffer.pitch) != buffer.pitch:
                return f"{buffer.name} has another pitch than another part"
    return ""


def _bad_part(program: RProgram, number: int) -> bool:
    """Whether a part is anything but the same columns of every row of a buffer that is no part."""
    part = program.buffers[number]
    if not 0 <= part.index < len(program.buffers):
        return True
    whole, item = program.buffers[part.index], dtype_bytes(part.dtype)
    if whole.space == "part" or part.pitch < 1 or whole.nbytes < 1 or whole.nbytes % part.pitch:
        return True
    rows = whole.nbytes // part.pitch
    if part.nbytes % rows or part.pitch % item or part.offset % item:
        return True
    length = part.nbytes // rows
    sizes = [prod(part.shape[axis:]) * item for axis in range(len(part.shape) + 1)]
    return length not in sizes or not 0 <= part.offset <= part.pitch - length


def _bad_producer(program: RProgram) -> str:
    written: dict[int, int] = {}
    shared = _overlaps(program)
    for number, operator in enumerate(program.operators):
        writes = program.writes(number)
        for position, argument in enumerate(operator.arguments):
            for other, second in enumerate(operator.arguments):
                mine, theirs = program.buffers[argument], program.buffers[second]
                same = argument == second or shared[argument, second]
                if other != position and argument in writes and same:
                    return f"{operator.name} writes {mine.name} over its own {theirs.name}"
        for buffer in set(writes):
            name = program.buffers[buffer].name
            if program.buffers[whole_of(program, buffer)].space in ("input", "constant"):
                return f"{operator.name} writes {name}"
            if buffer in written:
                return f"{name} has two producers"
            for before in written:
                related = whole_of(program, before) == whole_of(program, buffer)
                if related and shared[before, buffer]:
                    return f"bytes of {name} have two producers"
            written[buffer] = number
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


def whole_of(program: RProgram, number: int) -> int:
    """The buffer that a part lies in, any other itself."""
    buffer = program.buffers[number]
    return buffer.index if buffer.space == "part" else number


def cells(program: RProgram) -> set[frozenset[int]]:
    """Which buffers have a byte in common: for every byte the buffers that it lies in."""
    events: list[tuple[tuple[str, int], int, int]] = []
    for number, buffer in enumerate(program.buffers):
        whole = program.buffers[whole_of(program, number)]
        memory = whole.space, 0 if whole.space in ("arena", "constant") else whole.index
        rows, pitch = 1, 0
        start = whole.offset
        if buffer is not whole:
            rows, pitch = whole.nbytes // buffer.pitch, buffer.pitch
            start += buffer.offset
        if buffer.nbytes:
            for row in range(rows):
                first = start + row * pitch
                events.append((memory, first, number))
                events.append((memory, first + buffer.nbytes // rows, number))
    found: set[frozenset[int]] = set()
    held: set[int] = set()
    for _, here in groupby(sorted(events), key=lambda event: event[:2]):
        for _, _, number in here:
            held ^= {number}
        found.add(frozenset(held))
    return found - {frozenset()}


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
    shared = np.zeros((len(program.buffers), len(program.buffers)), bool)
    for held in cells(program):
        numbers = list(held)
        shared[np.ix_(numbers, numbers)] = True
    return shared


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
    for held in sorted(map(sorted, cells(program))):
        written = [number for number in held if writes[:, number].any()]
        for index in held:
            buffer, whole = program.buffers[index], whole_of(program, index)
            if program.buffers[whole].space in ("input", "constant"):
                continue
            readers = np.flatnonzero(reads[:, index])
            owners = [n for n in written if whole_of(program, n) == whole]
            if not owners:
                if readers.size or buffer.space == "output":
                    return f"nobody writes {buffer.name}"
                continue
            producer = np.flatnonzero(writes[:, owners[0]])
            if not before[np.ix_(producer, readers)].all():
                return f"a reader of {buffer.name} does not come after all of its producer"
            others = [n for n in written if n != owners[0]]
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
    shared = _overlaps(program)
    for first, second in np.argwhere(seen & seen.T):
        if _conflict(program, shared, tasks[first], tasks[second]):
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

    Yields the buffers that hold the byte, and for each of them that is written the rTask that does.
    All bytes in the same buffers are alike, so one of them stands for all.
    """
    for held in cells(program):
        writers: dict[int, list[RTask]] = {}
        for _, _, task in program.tasks():
            for number in set(program.writes(task.operator)) & held:
                writers.setdefault(number, []).append(task)
        for choice in product(*writers.values()):
            yield sorted(held), dict(zip(writers, choice, strict=True))


def _replay(
    program: RProgram, order: list[RTask], held: list[int], writer: dict[int, RTask]
) -> str:
    """Run ``order`` and watch one byte: which buffer's value does it hold?

    A value is that of a buffer, whichever part of it was written or is read.
    """
    value: int | None = None
    spaces = {b: program.buffers[whole_of(program, b)].space for b in held}
    given = {b for b in held if spaces[b] in ("input", "constant")}
    for task in order:
        for buffer in set(program.reads(task.operator)) & set(held) - given:
            if value != whole_of(program, buffer):
                return f"{program.operators[task.operator].name} reads a wrong byte"
        for buffer, owner in writer.items():
            if owner is task:
                value = whole_of(program, buffer)
    outputs = [b for b in held if program.buffers[b].space == "output"]
    return "a wrong byte at the end" if any(value != b for b in outputs) else ""


def _conflict(program: RProgram, shared: Matrix, first: RTask, second: RTask) -> bool:
    """Whether two rTasks of different operators may touch one byte, one of them writing."""
    return first.operator != second.operator and any(
        shared[w, b]
        for writer, other in ((first, second), (second, first))
        for w in program.writes(writer.operator)
        for b in program.operators[other.operator].arguments
    )
