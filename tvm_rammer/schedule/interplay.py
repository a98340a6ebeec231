"""Interplay: which rKernel each operator of a wave takes, given who runs beside it.

A fast rKernel wins when its operator owns the device, an efficient one when vEUs are scarce: it
takes longer but uses less *area* (vEUs x seconds), which leaves more of the device to the other
operators of the wave (Rammer, OSDI 2020, section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tvm_rammer.rprogram.program import RKernel
from tvm_rammer.schedule.costs import CostModel

#: With so many tiles for each vEU an rKernel shares out evenly: finer ones would only take longer.
_ENOUGH_TILES = 4


class Trade(NamedTuple):
    """Take ``candidate`` in place of the one before it: ``gain`` = area saved per second lost."""

    candidate: int
    gain: float


def worth_weighing(candidates: Sequence[RKernel], num_veus: int) -> list[tuple[int, RKernel]]:
    """The candidates, with their numbers: those finer than what has tiles enough are left out."""
    counts = [kernel.num_tiles for kernel in candidates]
    most = min((n for n in counts if n >= _ENOUGH_TILES * num_veus), default=max(counts))
    return [(k, kernel) for k, kernel in enumerate(candidates) if kernel.num_tiles <= most]


def area(kernel: RKernel) -> float:
    """vEU-seconds that all tiles of an rKernel take."""
    return kernel.num_tiles * kernel.tile_time


def fastest_time(kernel: RKernel, num_veus: int, costs: CostModel) -> float:
    """Seconds that an rKernel takes at least on a device of ``num_veus`` vEUs."""
    return costs.operator_time(kernel, costs.best_width(kernel, num_veus))


@lru_cache(maxsize=4096)
def trades(
    candidates: tuple[RKernel, ...], num_veus: int, costs: CostModel
) -> tuple[int, tuple[Trade, ...]]:
    """The fast candidate, and the trades that lead from it to the most efficient one.

    The trades follow the lower convex hull of the points (time, area), so their gains only fall.
    """
    points = {
        number: (fastest_time(kernel, num_veus, costs), area(kernel))
        for number, kernel in worth_weighing(candidates, num_veus)
    }
    fast = here = min(points, key=lambda number: points[number])
    steps: list[Trade] = []
    while True:
        (time, used) = points[here]
        # Whatever uses less area than the fast candidate takes longer: equals went to the smaller.
        options = [
            Trade(number, (used - less) / (longer - time))
            for number, (longer, less) in points.items()
            if less < used
        ]
        if not options:
            return fast, tuple(steps)
        steps.append(max(options, key=lambda trade: (trade.gain, -points[trade.candidate][1])))
        here = steps[-1].candidate


def interplay(
    wave: Sequence[tuple[RKernel, ...]], num_veus: int, costs: CostModel
) -> tuple[int, ...]:
    """Choose one candidate for each operator that runs in the same wave.

    Start from the fast ones. While the wave asks for more vEUs than there are, make the trade with
    the best gain; return the choice with the least estimated makespan that was seen on the way. The
    estimate is the larger of two lower bounds: the area over the vEUs, and the longest operator.

    Parameters
    ----------
    wave : sequence of tuple of RKernel
        The candidates of each operator.
    num_veus : int
        vEUs of the device.
    costs : CostModel
        What it costs to spread an operator over several vEUs.

    Returns
    -------
    tuple of int
        The number of the chosen candidate of each operator.
    """
    paths = [trades(candidates, num_veus, costs) for candidates in wave]
    chosen = [fast for fast, _ in paths]
    kernels = [candidates[fast] for candidates, fast in zip(wave, chosen, strict=True)]
    demand = sum(min(kernel.num_tiles, num_veus) for kernel in kernels)
    total = sum(map(area, kernels))
    longest = max((fastest_time(kernel, num_veus, costs) for kernel in kernels), default=0.0)
    estimate, kept = max(total / num_veus, longest), tuple(chosen)
    for operator, trade in _best_first([steps for _, steps in paths]):
        if demand <= num_veus:
            break
        before, after = kernels[operator], wave[operator][trade.candidate]
        chosen[operator], kernels[operator] = trade.candidate, after
        demand += min(after.num_tiles, num_veus) - min(before.num_tiles, num_veus)
        total += area(after) - area(before)
        longest = max(longest, fastest_time(after, num_veus, costs))
        if max(total / num_veus, longest) < estimate:
            estimate, kept = max(total / num_veus, longest), tuple(chosen)
    return kept


def _best_first(paths: Sequence[tuple[Trade, ...]]) -> list[tuple[int, Trade]]:
    """All trades, the best gain first; the sort is stable, so that each path keeps its order."""
    offers = [(operator, trade) for operator, steps in enumerate(paths) for trade in steps]
    return sorted(offers, key=lambda offer: -offer[1].gain)
