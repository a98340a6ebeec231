"""What hangs on each operator of a plan: its part of the critical path, and of the device's area.

An operator on the critical path delays the end by all of its time. One beside it delays others as
far as it keeps vEUs from them. Which one is which changes while operators become faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from tvm_rammer.machine import VDevice
from tvm_rammer.region.kernel_library import OperatorKernel
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.schedule.auto import auto
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.critical_path import critical_path
from tvm_rammer.schedule.policies import POLICIES
from tvm_rammer.schedule.simulate import simulate

#: Policies that plan in a moment; the best of them by simulation stands for the plan.
_PLANNING = ("sequential", "estf")


@dataclass(frozen=True)
class PlannedTask:
    """An operator as a plan has it.

    Attributes
    ----------
    kernels : frozenset of str
        The names of its rKernels, by the costs of which it takes ``seconds`` on one core.
    seconds : float
    outside : int
        How often it is called outside of regions, one after the other.
    """

    kernels: frozenset[str]
    seconds: float
    outside: int

    @staticmethod
    def of(kernel: OperatorKernel, outside: int) -> PlannedTask:
        names = frozenset(each.name for stage in kernel.stages for each in stage.candidates)
        usual = [stage.kernel for stage in kernel.stages]
        return PlannedTask(names, sum(k.num_tiles * k.tile_time for k in usual), outside)


class PlanShares:
    """The seconds that hang on each operator, for the seconds that they take one core.

    Parameters
    ----------
    graphs : sequence of OperatorGraph
        The regions of a model.
    tasks : sequence of PlannedTask
    vdevice : VDevice
    costs : CostModel
    """

    def __init__(
        self,
        graphs: Sequence[OperatorGraph],
        tasks: Sequence[PlannedTask],
        vdevice: VDevice,
        costs: CostModel,
    ) -> None:
        self.graphs = graphs
        self.tasks = tasks
        self.vdevice = vdevice
        self.costs = costs
        self.owners = {name: k for k, task in enumerate(tasks) for name in task.kernels}
        self.known: tuple[tuple[float, ...], tuple[list[float], float]] | None = None

    def __call__(self, seconds: Sequence[float]) -> tuple[list[float], float]:
        """Parameters and results as of :data:`~tvm_rammer.tuning.session.Weigh`.

        Of an operator whose seconds are not finite those of the model of the machine count.
        """
        key = tuple(seconds)
        if self.known is None or self.known[0] != key:
            self.known = (key, self._planned(key))
        return self.known[1]

    def _planned(self, seconds: Sequence[float]) -> tuple[list[float], float]:
        factors = [
            one / task.seconds if isfinite(one) and task.seconds > 0 else 1.0
            for one, task in zip(seconds, self.tasks, strict=True)
        ]
        veus = self.vdevice.num_veus
        weights = [
            task.outside * factor * task.seconds / veus
            for task, factor in zip(self.tasks, factors, strict=True)
        ]
        total = sum(weights)
        for graph in self.graphs:
            total += self._add_region(graph, factors, weights)
        return weights, total

    def _add_region(
        self, graph: OperatorGraph, factors: Sequence[float], weights: list[float]
    ) -> float:
        """The seconds of a region's plan; adds what hangs on each task there."""
        kernels = {kernel for op in graph.operators for kernel in op.candidates}
        owners = self.owners
        graph = graph.with_costs(
            {k.name: k.tile_time * factors[owners[k.name]] for k in kernels if k.name in owners}
        )
        policies = {name: POLICIES[name] for name in _PLANNING}
        plan, _ = auto(graph, self.vdevice.num_veus, self.costs, policies)
        timeline = simulate(plan.program, self.costs)
        path = critical_path(plan.program, timeline)
        for span in timeline.spans:
            owner = owners.get(graph.operators[span.operator].candidates[0].name)
            if owner is not None:
                area = span.duration / self.vdevice.num_veus
                on_path = span.duration if (span.veu, span.position) in path else 0.0
                weights[owner] += (on_path + area) / 2
        return timeline.makespan
