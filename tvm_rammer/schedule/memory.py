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
import numpy.typing as npt

from tvm_rammer.rprogram.happens_before import Clocks, vector_clocks
from tvm_rammer.rprogram.program import RProgram, aligned
from tvm_rammer.rprogram.rows import root_of

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
    """Give every arena buffer an offset.

    By best fit along a linear extension of the program, or the largest first at the lowest place
    that is free, whichever takes less.

    Parameters
    ----------
    program : RProgram
        With its waits; its offsets are ignored.

    Returns
    -------
    RProgram
        The same program with the offsets of its arena buffers and ``arena_bytes``.
    """
    clocks = vector_clocks(program)
    last = _last_accesses(program)
    complete = _complete_before_writing(program, clocks)
    arena = _Arena(program.num_veus)
    offsets: dict[int, int] = {}
    for operator in _operators_in_order(program, clocks):
        for buffer in _arena_writes(program, operator):
            if buffer not in offsets:
                nbytes = aligned(program.buffers[buffer].nbytes)
                offsets[buffer] = arena.take(nbytes, complete[buffer], last[buffer])
    arena_bytes = arena.nbytes
    sizes = {buffer: aligned(program.buffers[buffer].nbytes) for buffer in offsets}
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
    order = vector_clocks(program).order
    steps = [program.veus[veu][position].operator for veu, position in order]
    change = np.zeros(len(steps) + 1, np.int64)
    total = 0
    for buffer, (first, last) in _lifetimes(program, steps).items():
        nbytes = aligned(program.buffers[buffer].nbytes)
        change[first] += nbytes
        change[last + 1] -= nbytes
        total += nbytes
    return MemoryReport(program.arena_bytes, total, int(change.cumsum().max()))


def _lifetimes(program: RProgram, steps: list[int]) -> dict[int, tuple[int, int]]:
    """First and last step that touch each arena buffer, given the operator of each step."""
    lives: dict[int, tuple[int, int]] = {}
    for step, operator in enumerate(steps):
        for buffer in program.operators[operator].arguments:
            root = root_of(program.buffers, buffer)
            if program.buffers[root].space == "arena":
                lives[root] = (lives.get(root, (step, step))[0], step)
    return lives


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
    for number, operator in enumerate(program.operators):
        for buffer in operator.arguments:
            root = root_of(program.buffers, buffer)
            np.maximum(last[root], last_task[number], out=last[root])
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
    completed, ended = complete[order], last[order]
    for place, buffer in enumerate(order):
        before = (ended[:place] <= completed[place]).all(axis=1)
        after = (ended[place] <= completed[:place]).all(axis=1)
        beside = np.flatnonzero(~(before | after))
        beside = beside[starts[beside].argsort()]
        # Behind the first ones, however many: no place there is taken by any of them.
        free_from = np.maximum.accumulate(np.append(0, stops[beside]))
        fitting = starts[beside] - free_from[:-1] >= sizes[buffer]
        starts[place] = free_from[fitting.argmax() if fitting.any() else -1]
        stops[place] = starts[place] + sizes[buffer]
    return dict.fromkeys(sizes, 0) | dict(zip(order, starts.tolist(), strict=True))


class _Arena:
    """Adjacent address segments from 0 upwards, each with the last access to it on every vEU.

    The last access of a segment's newest buffer stands for those of its older buffers too: they all
    happen before the newest one was written.
    """

    def __init__(self, num_veus: int) -> None:
        self.starts = np.empty(0, np.int64)
        self.last = np.empty((0, num_veus), np.int32)
        self.nbytes = 0

    def take(self, nbytes: int, complete: Counts, last: Counts) -> int:
        """Place a buffer and return its offset.

        Parameters
        ----------
        nbytes : int
            Its size.
        complete : ndarray
            Tasks of each vEU that are complete before the buffer is written.
        last : ndarray
            Tasks of each vEU that are complete when nothing touches it any more.
        """
        if nbytes == 0:
            return 0
        first, stop = self._best_fit(nbytes, complete)
        offset = int(self.starts[first]) if first < len(self.starts) else self.nbytes
        end = offset + nbytes
        after = int(self.starts[stop]) if stop < len(self.starts) else max(self.nbytes, end)
        # The rest of the last segment keeps its own last access.
        starts, lasts = (
            ([offset, end], [last, self.last[stop - 1]]) if end < after else ([offset], [last])
        )
        self.starts = np.concatenate([self.starts[:first], starts, self.starts[stop:]])
        self.last = np.concatenate([self.last[:first], lasts, self.last[stop:]])
        self.nbytes = max(self.nbytes, end)
        return offset

    def _best_fit(self, nbytes: int, complete: Counts) -> tuple[int, int]:
        """Segments to take, ``first <= i < stop``: of the shortest free run that is long enough.

        If there is none, a free run at the end of the arena grows, or the arena does.
        """
        count = len(self.starts)
        free = (self.last <= complete).all(axis=1)
        edges = np.flatnonzero(np.diff(free, prepend=False, append=False))
        firsts, stops = edges[::2], edges[1::2]
        bounds = np.append(self.starts, self.nbytes)
        lengths = bounds[stops] - bounds[firsts]
        fitting = np.flatnonzero(lengths >= nbytes)
        if fitting.size:
            run = fitting[lengths[fitting].argmin()]
            first = int(firsts[run])
            return first, int(np.searchsorted(bounds, bounds[first] + nbytes))
        return (int(firsts[-1]), count) if stops.size and stops[-1] == count else (count, count)
