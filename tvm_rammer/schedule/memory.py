"""One arena for all intermediate results, its offsets planned from lifetimes under happens-before.

Two arena buffers may share bytes only if all accesses of one happen before all accesses of the
other. In a parallel plan "dead" is therefore no point in time: the bytes of a buffer are free for
an operator if every rTask that touches the buffer happens before *every* rTask of the operator.

A buffer and its parts are one: it takes its place before the first of them is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tvm_rammer.rprogram.happens_before import Clocks, vector_clocks
from tvm_rammer.rprogram.program import RProgram, aligned
from tvm_rammer.rprogram.rows import Ints, root_of

#: Tasks of each vEU.
Counts = npt.NDArray[np.int32]

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


def plan_memory(program: RProgram) -> RProgram:
    """Give every arena buffer an offset: the largest first, each at the lowest place that is free.

    Parameters
    ----------
    program : RProgram
        With its waits; its offsets are ignored.

    Returns
    -------
    RProgram
        The same program with the offsets of its arena buffers and ``arena_bytes``.
    """
    offsets, arena_bytes = _largest_first(
        _written_sizes(program),
        _complete_before_writing(program, vector_clocks(program)),
        _last_accesses(program),
    )
    buffers = tuple(
        replace(buffer, offset=offsets.get(number, 0)) if buffer.space == "arena" else buffer
        for number, buffer in enumerate(program.buffers)
    )
    return replace(program, buffers=buffers, arena_bytes=arena_bytes)


def memory_report(program: RProgram) -> MemoryReport:
    """Compare a planned arena with the sum of its buffers and with what any plan needs."""
    total, peak = _total_and_peak(program, vector_clocks(program))
    return MemoryReport(program.arena_bytes, total, peak)


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


def _written_sizes(program: RProgram) -> dict[int, int]:
    """Bytes of the arena buffers that operators write (parts of)."""
    written = dict.fromkeys(
        root_of(program.buffers, buffer)
        for operator in range(len(program.operators))
        for buffer in program.writes(operator)
    )
    return {
        number: aligned(program.buffers[number].nbytes)
        for number in written
        if program.buffers[number].space == "arena"
    }


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


def _largest_first(
    sizes: dict[int, int], complete: Counts, last: Counts
) -> tuple[dict[int, int], int]:
    """Offsets, each below all that buffers have which are alive beside it, and the highest end."""
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
    offsets = dict.fromkeys(sizes, 0) | dict(zip(order, starts.tolist(), strict=True))
    return offsets, int(stops.max(initial=0))
