"""One arena for all intermediate results, its offsets planned from lifetimes under happens-before.

Two arena buffers may share bytes only if all accesses of one happen before all accesses of the
other. In a parallel plan "dead" is therefore no point in time: the bytes of a buffer are free for
an operator if every rTask that touches the buffer happens before *every* rTask of the operator.

A buffer and its parts are one: it takes its place before the first of them is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tvm_rammer.rprogram.happens_before import Clocks, vector_clocks
from tvm_rammer.rprogram.program import RProgram, aligned
from tvm_rammer.rprogram.rows import Ints, root_of
from tvm_rammer.schedule.arena import Arena
from tvm_rammer.schedule.owners import owners_of
from tvm_rammer.schedule.segments import Counts

#: What the arena may take more than all that is alive at once.
SLACK = 1.25

_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class MemoryReport:
    """How well an arena was planned.

    Attributes
    ----------
    arena_bytes : int
        What the program takes.
    intermediate_bytes : int
        What it would take if every buffer had bytes of its own.
    peak_bytes : int
        Most bytes alive at once in a serial run of the plan: no arena can be smaller.
    """

    arena_bytes: int
    intermediate_bytes: int
    peak_bytes: int


def plan_memory(program: RProgram, max_bytes: int | None = None) -> RProgram:
    """Give every arena buffer an offset.

    Along a linear extension of the program, each where its vEUs write what they wrote before
    (:class:`~.arena.Arena`), unless that takes more than :data:`SLACK` allows and the largest first
    at the lowest place that is free takes less.

    Parameters
    ----------
    program : RProgram
        With its waits; its offsets are ignored.
    max_bytes : int, optional
        What the arena should not exceed.

    Returns
    -------
    RProgram
        The same program with the offsets of its arena buffers and ``arena_bytes``.
    """
    clocks = vector_clocks(program)
    last = _last_accesses(program)
    complete = _complete_before_writing(program, clocks)
    owners = owners_of(program)
    most = _allowed(program, clocks, max_bytes)
    arena = Arena(program.num_veus, most)
    offsets: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for operator in _operators_in_order(program, clocks):
        for buffer in _arena_writes(program, operator):
            if buffer not in offsets:
                sizes[buffer] = aligned(program.buffers[buffer].nbytes)
                offsets[buffer] = arena.take(
                    sizes[buffer], complete[buffer], last[buffer], owners[buffer]
                )
    arena_bytes = arena.nbytes
    if arena_bytes > most:
        by_size = _largest_first(sizes, complete, last)
        end = max((by_size[buffer] + size for buffer, size in sizes.items()), default=0)
        if end < arena_bytes:
            offsets, arena_bytes = by_size, end
    buffers = tuple(
        replace(buffer, offset=offsets.get(number, 0)) if buffer.space == "arena" else buffer
        for number, buffer in enumerate(program.buffers)
    )
    return replace(program, buffers=buffers, arena_bytes=arena_bytes)


def memory_report(program: RProgram) -> MemoryReport:
    """Compare a planned arena with the sum of its buffers and with what any plan needs."""
    total, peak = _total_and_peak(program, vector_clocks(program))
    return MemoryReport(program.arena_bytes, total, peak)


def _allowed(program: RProgram, clocks: Clocks, max_bytes: int | None) -> int:
    """Bytes up to which an arena is not too large."""
    total, peak = _total_and_peak(program, clocks)
    allowed = min(total, int(SLACK * peak))
    return allowed if max_bytes is None else min(allowed, max_bytes)


def _total_and_peak(program: RProgram, clocks: Clocks) -> tuple[int, int]:
    """Bytes of all arena buffers, and the most alive at once in a serial run."""
    steps = np.array([program.veus[v][position].operator for v, position in clocks.order], np.int64)
    when, count = np.arange(len(steps)), len(program.buffers)
    first = np.full(len(program.operators), len(steps))
    final = np.full(len(program.operators), -1)
    np.minimum.at(first, steps, when)
    np.maximum.at(final, steps, when)
    operators, buffers = _accesses(program)
    born, dead = np.full(count, len(steps)), np.full(count, -1)
    np.minimum.at(born, buffers, first[operators])
    np.maximum.at(dead, buffers, final[operators])
    sizes = np.array([aligned(b.nbytes) if b.space == "arena" else 0 for b in program.buffers])
    alive = born <= dead
    change = np.zeros(len(steps) + 1, np.int64)
    np.add.at(change, born[alive], sizes[alive])
    np.subtract.at(change, dead[alive] + 1, sizes[alive])
    return int(sizes[alive].sum()), int(change.cumsum().max())


def _accesses(program: RProgram) -> tuple[Ints, Ints]:
    """Operators and the buffers that they touch, a part as its whole, pair by pair."""
    roots = [root_of(program.buffers, number) for number in range(len(program.buffers))]
    touched = [len(operator.arguments) for operator in program.operators]
    buffers = [roots[b] for operator in program.operators for b in operator.arguments]
    return np.repeat(np.arange(len(touched)), touched), np.array(buffers, np.int64)


def _arena_writes(program: RProgram, operator: int) -> Iterator[int]:
    """The arena buffers that an operator writes (parts of), the largest first.

    Small ones fit into gaps.
    """
    roots = {root_of(program.buffers, b) for b in program.writes(operator)}
    written = [b for b in sorted(roots) if program.buffers[b].space == "arena"]
    yield from sorted(written, key=lambda b: -program.buffers[b].nbytes)


def _operators_in_order(program: RProgram, clocks: Clocks) -> Iterator[int]:
    """Operators by their first task in the linear extension."""
    yield from dict.fromkeys(program.veus[v][position].operator for v, position in clocks.order)


def _last_accesses(program: RProgram) -> Counts:
    """``[buffer, u]``: tasks of vEU ``u`` that are complete when none touches the buffer more."""
    last_task = np.zeros((len(program.operators), program.num_veus), np.int32)
    for veu, position, task in program.tasks():
        last_task[task.operator, veu] = position + 1
    last = np.zeros((len(program.buffers), program.num_veus), np.int32)
    operators, buffers = _accesses(program)
    np.maximum.at(last, buffers, last_task[operators])
    return last


def _complete_before_writing(program: RProgram, clocks: Clocks) -> Counts:
    """``[buffer, u]``: tasks of vEU ``u`` complete before any writes the buffer or a part of it."""
    starts = _complete_before(program, clocks)
    complete = np.full((len(program.buffers), program.num_veus), _NEVER, np.int32)
    for operator in range(len(program.operators)):
        for buffer in program.writes(operator):
            root = root_of(program.buffers, buffer)
            np.minimum(complete[root], starts[operator], out=complete[root])
    return complete


def _complete_before(program: RProgram, clocks: Clocks) -> Counts:
    """``[operator, u]``: tasks of vEU ``u`` that are complete before any of the operator starts."""
    before = clocks.table.copy()
    veu_of_row = np.repeat(np.arange(program.num_veus), [len(tasks) for tasks in program.veus])
    before[np.arange(len(before)), veu_of_row] -= 1
    operators = np.array([task.operator for _, _, task in program.tasks()], np.int64)
    complete = np.full((len(program.operators), program.num_veus), _NEVER, np.int32)
    np.minimum.at(complete, operators, before)
    return complete


def _largest_first(sizes: dict[int, int], complete: Counts, last: Counts) -> dict[int, int]:
    """Offsets of buffers, each at the lowest place that no buffer has that is alive beside it."""
    order = sorted((buffer for buffer in sizes if sizes[buffer]), key=lambda b: -sizes[b])
    starts = np.zeros(len(order), np.int64)
    stops = np.zeros(len(order), np.int64)
    # ``[vEU, buffer]``: to compare with many buffers is quick where they lie side by side.
    completed, ended = complete[order].T.copy(), last[order].T.copy()
    for place, buffer in enumerate(order):
        before = (ended[:, :place] <= completed[:, place, None]).all(axis=0)
        after = (ended[:, place, None] <= completed[:, :place]).all(axis=0)
        beside = np.flatnonzero(~(before | after))
        beside = beside[starts[beside].argsort()]
        # Behind the first ones, however many: no place there is taken by any of them.
        free_from = np.maximum.accumulate(np.append(0, stops[beside]))
        fitting = starts[beside] - free_from[:-1] >= sizes[buffer]
        starts[place] = free_from[fitting.argmax() if fitting.any() else -1]
        stops[place] = starts[place] + sizes[buffer]
    return dict.fromkeys(sizes, 0) | dict(zip(order, starts.tolist(), strict=True))
