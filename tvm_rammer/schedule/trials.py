"""Plans of one graph on paper: what several ask for is simulated once, and shares its tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Demands
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.simulate import seconds_by_wave, simulate
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.timeline import Timeline
from tvm_rammer.schedule.traffic import seconds_alone, seconds_saved

#: Programs and timelines are large: so many stay at hand, for who looks closer at a plan that has
#: just been compared with another one.
_KEPT = 2


@dataclass(frozen=True)
class _Seconds:
    """What a plan takes: in one launch, and with a launch for each of its waves."""

    at_once: float
    by_wave: float


class Trials:
    """Simulated plans of a graph, with those of its rKernels that a placement names.

    Parameters
    ----------
    graph : OperatorGraph
        With all candidates; placements of the same graph with fewer are its own too.
    num_veus : int
    costs : CostModel
    """

    def __init__(self, graph: OperatorGraph, num_veus: int, costs: CostModel) -> None:
        self.graph = graph
        self.num_veus = num_veus
        self.costs = costs
        self._demands = Demands.of_graph(graph, num_veus, costs)
        self._seconds: dict[tuple[Placement, bool], _Seconds] = {}
        self._latest: dict[tuple[Placement, bool], tuple[RProgram, Timeline]] = {}

    def seconds(self, placement: Placement) -> float:
        """Of its plan, whose waits are gathered where that pays."""
        return self._of(placement, self._gathers).at_once

    def seconds_by_wave(self, placement: Placement) -> float:
        """Of that plan with a launch for each of its waves."""
        return self._of(placement, self._gathers).by_wave

    def program(self, placement: Placement) -> RProgram:
        """That plan."""
        return self._run(placement, self._gathers)[0]

    def plain(self, placement: Placement) -> tuple[RProgram, Timeline]:
        """Its plan with an rTask for each range of tiles and no other: no waits are gathered."""
        return self._run(placement, False)

    def plain_seconds(self, placement: Placement) -> float:
        """Of that plan."""
        return self._of(placement, False).at_once

    def plain_seconds_by_wave(self, placement: Placement) -> float:
        """Of that plan with a launch for each of its waves."""
        return self._of(placement, False).by_wave

    @cached_property
    def least(self) -> float:
        """Seconds that no plan can beat, whichever rKernels it takes: all work, spread evenly.

        Whoever is as fast as that, but for what a comparison asks for, needs no rival.
        """
        costs, demands = self.costs, self._demands
        work = 0.0
        for op, nbytes, weight in zip(
            self.graph.operators, demands.memory_bytes, demands.weights, strict=True
        ):
            computing = min(kernel.num_tiles * kernel.tile_time for kernel in op.candidates)
            alone = seconds_alone(computing, nbytes, costs)
            work += alone - seconds_saved(alone, weight, costs)
        return costs.launch + work / self.num_veus

    @property
    def _gathers(self) -> bool:
        return self.costs.wait > 0

    def _of(self, placement: Placement, gather: bool) -> _Seconds:
        if (placement, gather) not in self._seconds:
            self._run(placement, gather)
        return self._seconds[placement, gather]

    def _run(self, placement: Placement, gather: bool) -> tuple[RProgram, Timeline]:
        key = (placement, gather)
        if key not in self._latest:
            program = synchronise(self.graph, placement, self.costs if gather else None)
            timeline = simulate(program, self.costs, self._demands)
            if len(self._latest) == _KEPT:
                del self._latest[next(iter(self._latest))]
            self._latest[key] = program, timeline
            # The plan is at hand now; who asks later would have to simulate it again.
            by_wave = seconds_by_wave(program, timeline, self.costs)
            self._seconds[key] = _Seconds(timeline.makespan, by_wave)
        return self._latest[key]
