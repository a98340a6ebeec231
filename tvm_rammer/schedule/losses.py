"""What each cost takes of a plan: it is simulated again as if that cost were nothing."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.simulate import simulate
from tvm_rammer.schedule.timeline import Span, Timeline

#: Bytes per second that hold nothing up.
_UNLIMITED = sys.float_info.max
#: Operators that are named.
_NAMED = 3


def _without_transfers(costs: CostModel) -> CostModel:
    far = costs.topology and costs.topology.changed(
        lambda pair: replace(pair, transfer=0.0, transfer_byte=0.0)
    )
    return replace(costs, transfer=0.0, transfer_byte=0.0, topology=far)


def _without_waits(costs: CostModel) -> CostModel:
    far = costs.topology and costs.topology.changed(lambda pair: replace(pair, point_to_point=0.0))
    return replace(costs, point_to_point=0.0, barrier=0.0, topology=far)


def _without_memory(costs: CostModel) -> CostModel:
    return replace(costs, memory_bandwidth=_UNLIMITED, core_memory_bandwidth=_UNLIMITED)


#: Each cost by name, and a device where it is nothing.
COSTS: Mapping[str, Callable[[CostModel], CostModel]] = {
    "transfers": _without_transfers,
    "waits": _without_waits,
    "memory": _without_memory,
    "shared cache": lambda costs: replace(costs, bandwidth=_UNLIMITED),
    "rows": lambda costs: replace(costs, row=0.0),
    "launch": lambda costs: replace(costs, launch=0.0),
}


@dataclass(frozen=True)
class Loss:
    """What a plan would gain on a device where one cost is nothing.

    Attributes
    ----------
    cost : str
        One of :data:`COSTS`: data in the caches of other vEUs, signals between vEUs, weights that
        come from memory, the bandwidth of the last-level cache, what every rTask (a row of the
        table) takes beside its tiles, the launch.
    seconds : float
        How much sooner the same plan ends. What two costs take together may be more or less than
        the sum.
    operators : tuple of (str, float)
        The operators that it holds up most, and the seconds of vEUs that each loses.
    """

    cost: str
    seconds: float
    operators: tuple[tuple[str, float], ...]


def losses(program: RProgram, costs: CostModel) -> tuple[Loss, ...]:
    """What each cost takes of a plan, the dearest first; those that take nothing are left out."""
    timeline = simulate(program, costs)
    found = [
        _loss(name, program, timeline, simulate(program, without(costs)))
        for name, without in COSTS.items()
    ]
    return tuple(sorted((loss for loss in found if loss.seconds > 0), key=lambda x: -x.seconds))


def _loss(name: str, program: RProgram, timeline: Timeline, without: Timeline) -> Loss:
    seconds = timeline.makespan - without.makespan
    if name == "launch":
        return Loss(name, seconds, ())
    # A wait holds up who waits; all else makes rTasks longer, and others wait for those.
    of_operators = _idle if name == "waits" else _busy
    kept = of_operators(without)
    lost = {n: spent - kept.get(n, 0.0) for n, spent in of_operators(timeline).items()}
    most = sorted(lost, key=lambda n: -lost[n])[:_NAMED]
    return Loss(
        name, seconds, tuple((program.operators[n].name, lost[n]) for n in most if lost[n] > 0)
    )


def _busy(timeline: Timeline) -> dict[int, float]:
    found: dict[int, float] = defaultdict(float)
    for span in timeline.spans:
        found[span.operator] += span.duration
    return found


def _idle(timeline: Timeline) -> dict[int, float]:
    """Seconds that vEUs had nothing to do right before the rTasks of each operator."""
    found: dict[int, float] = defaultdict(float)
    by_veu: dict[int, list[Span]] = {}
    for span in timeline.spans:
        by_veu.setdefault(span.veu, []).append(span)
    for spans in by_veu.values():
        for before, span in pairwise(sorted(spans, key=lambda s: (s.start, s.position))):
            found[span.operator] += span.start - before.stop
    return found
