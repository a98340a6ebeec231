"""From a placement to an rProgram: derive the waits that order it, and none that others imply.

Where each of many vEUs would wait for each of many others, one of them waits for all, in an rTask
without tiles, and the rest wait for it: a barrier of those whom it concerns. Its signal comes one
hand-over later, so it is there only where that many waits take longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RKernel, ROperator, RProgram, RTask, Wait
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.placement import Placed, Placement


def synchronise(
    graph: OperatorGraph, placement: Placement, costs: CostModel | None = None
) -> RProgram:
    """Turn a placement into an rProgram whose waits make it safe; memory is not planned yet.

    A task waits for the tasks of the operators whose results it reads and, if the placement asks
    for barriers, for all tasks of earlier waves. What already follows from the order of its own vEU
    and from its other waits is left out: the waits are the transitive reduction of the order that
    is needed (as Nimble, NeurIPS 2020, does between streams).

    Parameters
    ----------
    graph : OperatorGraph
    placement : Placement
    costs : CostModel, optional
        Say where waits are gathered; without them they never are.

    Raises
    ------
    PlanError
        If two ranges of an operator name different candidates, or the order on the vEUs contradicts
        the graph.
    """
    veus = [[placed for placed in veu if placed.start < placed.stop] for veu in placement.veus]
    kernels: dict[RKernel, int] = {}
    operators = []
    for op, candidate in zip(graph.operators, _candidates(graph, veus), strict=True):
        kernel = kernels.setdefault(op.candidates[candidate], len(kernels))
        operators.append(ROperator(op.name, kernel, op.arguments))
    return RProgram(
        name=graph.name,
        policy=placement.policy,
        buffers=graph.buffers,
        kernels=tuple(kernels),
        operators=tuple(operators),
        veus=_Walk(graph, veus, placement.barrier, costs).run(),
        constant_bytes=graph.constant_bytes,
    )


def _candidates(graph: OperatorGraph, veus: Sequence[Sequence[Placed]]) -> list[int]:
    """The one candidate of each operator (the first for an operator without tiles)."""
    chosen: dict[int, int] = {}
    for veu in veus:
        for placed in veu:
            if chosen.setdefault(placed.operator, placed.candidate) != placed.candidate:
                name = graph.operators[placed.operator].name
                raise PlanError(
                    f"operator {name!r} is placed with candidates {chosen[placed.operator]} and "
                    f"{placed.candidate}; give all of its ranges the same candidate"
                )
    return [chosen.get(number, 0) for number in range(len(graph.operators))]


#: For each vEU how many of its tasks are complete. (The garbage collector passes over tuples of
#: int, of which there are as many as tasks, and not over lists.)
Clock = tuple[int, ...]


class _Need(NamedTuple):
    """What the tasks of one operator have to come after.

    ``waits`` are the tasks that no other one of them implies; ``clock[u]`` counts the tasks of vEU
    ``u`` that are complete when all of them are.
    """

    waits: tuple[Wait, ...]
    clock: Clock


class _Walk:
    """A walk through all tasks in an order that the needs allow; gives each its waits and clock.

    Attributes
    ----------
    tasks : list
        Those of each vEU so far.
    clocks : list
        ``clocks[v][i][u]`` counts the tasks of vEU ``u`` that are complete when task ``i`` of vEU
        ``v`` is.
    left : list of int
        Tasks of each operator that are still to come.
    ends : list of dict
        Of each operator, how many tasks each of its vEUs has up to its last one so far.
    waves, fence
        With barriers: the waves to run, and how many tasks of each vEU came before the one that
        runs.
    gathered : dict
        What stands in for so many waits: one, for the rTask that has them.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        veus: Sequence[Sequence[Placed]],
        barrier: bool,
        costs: CostModel | None,
    ) -> None:
        self.graph = graph
        self.veus = veus
        self.costs = costs
        self.left = [0] * len(graph.operators)
        #: By what is needed, how many vEUs have tasks of each operator that needs it.
        self.waiting: Counter[tuple[int, ...]] = Counter()
        for veu in veus:
            for placed in veu:
                self.left[placed.operator] += 1
            for operator in {placed.operator for placed in veu}:
                self.waiting[graph.predecessors[operator]] += 1
        self.ends: list[dict[int, int]] = [{} for _ in graph.operators]
        self.needs: dict[int, _Need] = {}
        self.gathered: dict[tuple[Wait, ...], _Need] = {}
        self.tasks: list[list[RTask]] = [[] for _ in veus]
        self.clocks: list[list[Clock]] = [[] for _ in veus]
        self.start: Clock = (0,) * len(veus)
        self.waves = sorted({placed.wave for veu in veus for placed in veu}) if barrier else [inf]
        self.fence = [0] * len(veus)

    def run(self) -> tuple[tuple[RTask, ...], ...]:
        done = [0] * len(self.veus)
        for wave in self.waves:
            self.fence = list(map(len, self.tasks))
            while self._sweep(done, wave):
                pass
        for mine, count in zip(self.veus, done, strict=True):
            if count < len(mine):
                raise PlanError(self._stuck(mine[count]))
        return tuple(map(tuple, self.tasks))

    def _sweep(self, done: list[int], wave: float) -> bool:
        """Take every vEU as far as it can go up to ``wave``; say whether any task ran."""
        ran = False
        for veu, mine in enumerate(self.veus):
            while done[veu] < len(mine):
                placed = mine[done[veu]]
                if placed.wave > wave or not self._ready(placed.operator):
                    break
                self._step(veu, placed)
                done[veu] += 1
                ran = True
        return ran

    def _ready(self, operator: int) -> bool:
        return operator in self.needs or not any(
            self.left[before] for before in self.graph.predecessors[operator]
        )

    def _step(self, veu: int, placed: Placed) -> None:
        operator = placed.operator
        if operator not in self.needs:
            need = self._need(operator)
            if self._is_worth_gathering(operator, need):
                need = self._gather(veu, placed, need)
            self.needs[operator] = need
        self._append(veu, placed, self.needs[operator])
        self.ends[operator][veu] = len(self.tasks[veu])
        self.left[operator] -= 1

    def _append(self, veu: int, placed: Placed, need: _Need) -> None:
        """The next task of a vEU."""
        clocks = self.clocks[veu]
        before = clocks[-1] if clocks else self.start
        waits = tuple([wait for wait in need.waits if wait.count > before[wait.veu]])
        clock = list(map(max, before, need.clock) if waits else before)
        clock[veu] += 1
        clocks.append(tuple(clock))
        task = RTask(placed.operator, placed.start, placed.stop, waits, placed.wave)
        self.tasks[veu].append(task)

    def _is_worth_gathering(self, operator: int, need: _Need) -> bool:
        """Whether all that wait for the same take longer than one of them and a hand-over."""
        if self.costs is None:
            return False
        here, there = len(need.waits), self.waiting[self.graph.predecessors[operator]]
        fewer = here * there - here - there
        return fewer * self.costs.wait > self.costs.point_to_point

    def _gather(self, veu: int, placed: Placed, need: _Need) -> _Need:
        """What stands in for a need: an rTask before the first that has it, if there is none yet.

        Whoever finds one comes after it in this walk, so that waits form no cycle.
        """
        if need.waits not in self.gathered:
            self._append(veu, replace(placed, start=0, stop=0), need)
            signal = Wait(veu, len(self.tasks[veu]))
            self.gathered[need.waits] = _Need((signal,), self.clocks[veu][-1])
        return self.gathered[need.waits]

    def _need(self, operator: int) -> _Need:
        """All tasks of the operator share this; what its own vEU implies differs per task."""
        last = self.fence.copy()
        for before in self.graph.predecessors[operator]:
            for veu, count in self.ends[before].items():
                last[veu] = max(last[veu], count)
        wanted = [(veu, count) for veu, count in enumerate(last) if count]
        if not wanted:
            return _Need((), self.start)
        reached = list(zip(*(self.clocks[veu][count - 1] for veu, count in wanted), strict=True))
        clock = tuple(map(max, reached))
        # A task is implied by another that comes after as many tasks of its vEU, or after more.
        waits = tuple(
            [
                Wait(veu, count)
                for veu, count in wanted
                if clock[veu] == count and reached[veu].count(count) == 1
            ]
        )
        return _Need(waits, clock)

    def _stuck(self, placed: Placed) -> str:
        name = self.graph.operators[placed.operator].name
        return (
            f"operator {name!r} in wave {placed.wave} is placed before operators that it needs; "
            "order the ranges of every vEU by wave and the waves by the graph"
        )
