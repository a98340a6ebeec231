"""From a placement to an rProgram: derive the waits that order it, and none that others imply."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RKernel, ROperator, RProgram, RTask, Wait
from tvm_rammer.schedule.placement import Placed, Placement


def synchronise(graph: OperatorGraph, placement: Placement) -> RProgram:
    """Turn a placement into an rProgram whose waits make it safe; memory is not planned yet.

    A task waits for the tasks of the operators whose results it reads and, if the placement asks
    for barriers, for all tasks of earlier waves. What already follows from the order of its own vEU
    and from its other waits is left out: the waits are the transitive reduction of the order that
    is needed (as Nimble, NeurIPS 2020, does between streams).

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
        veus=_Walk(graph, veus, placement.barrier).run(),
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
    clocks : list
        ``clocks[v][i][u]`` counts the tasks of vEU ``u`` that are complete when task ``i`` of vEU
        ``v`` is.
    left : list of int
        Tasks of each operator that are still to come.
    waves, fence
        With barriers: the waves to run, and how many tasks of each vEU came before the one that
        runs.
    """

    def __init__(
        self, graph: OperatorGraph, veus: Sequence[Sequence[Placed]], barrier: bool
    ) -> None:
        self.graph = graph
        self.veus = veus
        self.places: list[list[tuple[int, int]]] = [[] for _ in graph.operators]
        for number, veu in enumerate(veus):
            for position, placed in enumerate(veu):
                self.places[placed.operator].append((number, position))
        self.left = list(map(len, self.places))
        self.needs: dict[int, _Need] = {}
        self.clocks: list[list[Clock]] = [[] for _ in veus]
        self.start: Clock = (0,) * len(veus)
        self.waves = sorted({placed.wave for veu in veus for placed in veu}) if barrier else [inf]
        self.fence = [0] * len(veus)

    def run(self) -> tuple[tuple[RTask, ...], ...]:
        tasks: list[list[RTask]] = [[] for _ in self.veus]
        for wave in self.waves:
            self.fence = list(map(len, tasks))
            while self._sweep(tasks, wave):
                pass
        for mine, done in zip(self.veus, tasks, strict=True):
            if len(done) < len(mine):
                raise PlanError(self._stuck(mine[len(done)]))
        return tuple(map(tuple, tasks))

    def _sweep(self, tasks: list[list[RTask]], wave: float) -> bool:
        """Take every vEU as far as it can go up to ``wave``; say whether any task ran."""
        ran = False
        for veu, mine in enumerate(self.veus):
            done = tasks[veu]
            while len(done) < len(mine):
                placed = mine[len(done)]
                if placed.wave > wave or not self._ready(placed.operator):
                    break
                done.append(self._step(veu, placed))
                ran = True
        return ran

    def _ready(self, operator: int) -> bool:
        return operator in self.needs or not any(
            self.left[before] for before in self.graph.predecessors[operator]
        )

    def _step(self, veu: int, placed: Placed) -> RTask:
        if placed.operator not in self.needs:
            self.needs[placed.operator] = self._need(placed.operator)
        need, clocks = self.needs[placed.operator], self.clocks[veu]
        before = clocks[-1] if clocks else self.start
        waits = tuple([wait for wait in need.waits if wait.count > before[wait.veu]])
        clock = list(map(max, before, need.clock) if waits else before)
        clock[veu] += 1
        clocks.append(tuple(clock))
        self.left[placed.operator] -= 1
        return RTask(placed.operator, placed.start, placed.stop, waits, placed.wave)

    def _need(self, operator: int) -> _Need:
        """All tasks of the operator share this; what its own vEU implies differs per task."""
        last = self.fence.copy()
        for before in self.graph.predecessors[operator]:
            for veu, position in self.places[before]:
                last[veu] = max(last[veu], position + 1)
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
