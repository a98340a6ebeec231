"""What a list scheduler decides beforehand: one rKernel for each operator, and its urgency."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RKernel
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.interplay import fastest_time, interplay


def choose_by_level(
    graph: OperatorGraph, levels: Sequence[int], num_veus: int, costs: CostModel
) -> list[int]:
    """The candidate of each operator, by :func:`interplay` with the others of its level."""
    chosen = [0] * len(graph.operators)
    for wave in waves_of(levels):
        candidates = [graph.operators[number].candidates for number in wave]
        for number, candidate in zip(wave, interplay(candidates, num_veus, costs), strict=True):
            chosen[number] = candidate
    return chosen


def waves_of(levels: Sequence[int]) -> list[list[int]]:
    """The operators of each level, ascending."""
    waves: list[list[int]] = [[] for _ in range(1 + max(levels, default=-1))]
    for number, level in enumerate(levels):
        waves[level].append(number)
    return waves


def upward_ranks(
    graph: OperatorGraph, kernels: Sequence[RKernel], num_veus: int, costs: CostModel
) -> list[float]:
    """Seconds from the start of each operator to the end of the longest path behind it.

    The upward rank of HEFT (Topcuoglu, Hariri and Wu, *Performance-Effective and Low-Complexity
    Task Scheduling for Heterogeneous Computing*, IEEE TPDS 2002): an operator takes as long as it
    does with as many vEUs as pay, and transfers count as nothing.
    """
    ranks = [fastest_time(kernel, num_veus, costs) for kernel in kernels]
    for number in reversed(range(len(ranks))):
        ranks[number] += max((ranks[after] for after in graph.successors[number]), default=0.0)
    return ranks
