"""Simulate an rProgram: when each rTask starts and ends, and how soon any schedule could end."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.rprogram.happens_before import linear_extension
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.timeline import Span, Timeline


@dataclass(frozen=True)
class Bounds:
    """Seconds that no schedule of the same rKernels on as many vEUs can beat, launch not counted.

    Attributes
    ----------
    critical_path : float
        The longest path of the graph, every operator across all vEUs.
    work : float
        All tiles, spread evenly over the vEUs.
    """

    critical_path: float
    work: float

    @property
    def makespan(self) -> float:
        return max(self.critical_path, self.work)


def simulate(program: RProgram, costs: CostModel) -> Timeline:
    """Run a program on paper.

    An rTask starts when its vEU is free and the last rTask that it waits for has ended
    ``costs.point_to_point`` ago. Time 0 is the launch.

    Returns
    -------
    Timeline
        One span for each rTask, vEU by vEU.
    """
    ends: list[list[float]] = [[] for _ in program.veus]
    spans: list[list[Span]] = [[] for _ in program.veus]
    for veu, position in linear_extension(program):
        task = program.veus[veu][position]
        start = ends[veu][-1] if position else costs.launch
        for wait in task.waits:
            start = max(start, ends[wait.veu][wait.count - 1] + costs.point_to_point)
        stop = start + (task.stop - task.start) * program.kernel_of(task.operator).tile_time
        ends[veu].append(stop)
        spans[veu].append(Span(veu, position, task.operator, start, stop))
    return Timeline(tuple(s for mine in spans for s in mine), "simulated", program.num_veus)


def bounds(program: RProgram) -> Bounds:
    """Lower bounds of the makespan of any plan that uses the same rKernels."""
    producers = {b: op for op in range(len(program.operators)) for b in program.writes(op)}
    work, ends = 0.0, list[float]()
    for number in range(len(program.operators)):
        kernel = program.kernel_of(number)
        before = [ends[producers[b]] for b in program.reads(number) if b in producers]
        alone = -(-kernel.num_tiles // program.num_veus) * kernel.tile_time
        ends.append(max(before, default=0.0) + alone)
        work += kernel.num_tiles * kernel.tile_time
    return Bounds(max(ends, default=0.0), work / program.num_veus)
