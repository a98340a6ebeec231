"""Levels of a graph for wavefronts: as soon as possible, then balanced within each one's slack."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_rammer.rprogram.graph import Operator, OperatorGraph
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.interplay import area, fastest_time


def balanced_levels(graph: OperatorGraph, num_veus: int, costs: CostModel) -> list[int]:
    """Let operators with slack leave over-full waves for later ones. O(E).

    Plain levels (Kahn's, ASAP) crowd the first waves: the input products of all time steps of a
    recurrent network are ready at once, and their results occupy the arena until they are needed.
    A wave is over-full if its work keeps all vEUs busy for longer than its longest operator takes.
    What leaves such a wave shortens it by as much as it lengthens another. An operator may go to
    the level before its first consumer (ALAP, given where the consumers went, which are visited
    first so that whole chains move), and does if that wave is emptier, or if its results then
    occupy less memory.

    Returns
    -------
    list of int
        For each operator a level between those of its predecessors and its successors.
    """
    levels = list(graph.levels)
    kernels = [op.candidates[0] for op in graph.operators]
    areas = list(map(area, kernels))
    loads, needed = _waves(levels, areas, [fastest_time(k, num_veus, costs) for k in kernels])
    for number in reversed(range(len(levels))):
        soonest, work = levels[number], areas[number]
        latest = min((levels[after] for after in graph.successors[number]), default=len(loads)) - 1
        rest = loads[soonest] - work
        if latest == soonest or rest < num_veus * needed[soonest]:
            continue
        if loads[latest] <= rest or _holds_more_than_it_reads(graph, graph.operators[number]):
            levels[number] = latest
            loads[soonest] = rest
            loads[latest] += work
    return levels


def _waves(
    levels: Sequence[int], areas: Sequence[float], times: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Work and longest operator of each level."""
    loads = [0.0] * (1 + max(levels, default=-1))
    longest = list(loads)
    for level, work, time in zip(levels, areas, times, strict=True):
        loads[level] += work
        longest[level] = max(longest[level], time)
    return loads, longest


def _holds_more_than_it_reads(graph: OperatorGraph, operator: Operator) -> bool:
    held = 0
    for number, mode in zip(operator.arguments, operator.candidates[0].modes, strict=True):
        buffer = graph.buffers[number]
        if buffer.space in ("arena", "part"):
            held += buffer.nbytes if mode == "write" else -buffer.nbytes
    return held > 0
