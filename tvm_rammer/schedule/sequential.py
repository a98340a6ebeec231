"""Operator after operator, each across as many vEUs as pay: the baseline that others must beat."""

from __future__ import annotations

from functools import cache

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RKernel
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.interplay import worth_weighing
from tvm_rammer.schedule.placement import Placed, Placement, split


def sequential(graph: OperatorGraph, num_veus: int, costs: CostModel) -> Placement:
    """Give every operator a wave of its own, in topological order.

    An operator takes the rKernel and the number of vEUs that end it soonest; one with too little
    work to pay for a barrier stays on one vEU.
    """
    veus: list[list[Placed]] = [[] for _ in range(num_veus)]

    @cache
    def soonest(candidates: tuple[RKernel, ...]) -> tuple[int, int]:
        options = [
            (number, costs.best_width(kernel, num_veus))
            for number, kernel in worth_weighing(candidates, num_veus)
        ]
        return min(options, key=lambda o: costs.operator_time(candidates[o[0]], o[1]))

    for wave, operator in enumerate(graph.operators):
        candidate, width = soonest(operator.candidates)
        tiles = operator.candidates[candidate].num_tiles
        for veu, (start, stop) in enumerate(split(tiles, width)):
            veus[veu].append(Placed(wave, candidate, start, stop, wave))
    return Placement("sequential", tuple(map(tuple, veus)), barrier=True)
