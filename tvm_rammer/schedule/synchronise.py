"""From a placement to an rProgram: derive the waits that order it, and none that others imply.

Where each of many vEUs would wait for each of many others, one of them waits for all, in an rTask
without tiles, and the rest wait for it: a barrier of those whom it concerns. Its signal comes one
hand-over later, so it is there only where that many waits take longer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import compress
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RKernel, ROperator, RProgram, RTask, Wait
from tvm_rammer.rprogram.rows import Ints
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


_VEU_OF = attrgetter("veu")

#: For each vEU how many of its tasks are complete when a task is. What it says of the task's own
#: vEU does not count, as the task's place does: so tasks that come after the same share a clock.
Clock = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class _Need:
    """What the tasks of some operators have to come after.

    Attributes
    ----------
    waits : tuple of Wait
        For the tasks that no other one of them implies.
    clock : Clock
        ``clock[u]`` counts the tasks of vEU ``u`` that are complete when all of them are.
    """

    waits: tuple[Wait, ...]
    clock: Clock
    _known: dict[int, tuple[Clock, tuple[Wait, ...], Clock]] = field(default_factory=dict)

    @cached_property
    def veus(self) -> Ints:
        return np.array([wait.veu for wait in self.waits], np.int64)

    @cached_property
    def counts(self) -> Ints:
        return np.array([wait.count for wait in self.waits], np.int64)

    def after(self, before: Clock) -> tuple[tuple[Wait, ...], Clock]:
        """What tasks behind others of this clock still wait for, and their clock then."""
        found = self._known.get(id(before))
        if found is None:
            # With the clock itself, or another one might come to have its identity.
            found = self._known[id(before)] = before, *self._after(before)
        return found[1:]

    def _after(self, before: Clock) -> tuple[tuple[Wait, ...], Clock]:
        if len(self.waits) == 1 and self.waits[0].count <= before[self.waits[0].veu]:
            return (), before
        fresh = (self.counts > before[self.veus]).tolist()
        if True not in fresh:
            return (), before
        waits = tuple(compress(self.waits, fresh)) if False in fresh else self.waits
        beyond = np.count_nonzero(before > self.clock)
        return waits, np.maximum(before, self.clock) if beyond else self.clock


class _Walk:
    """A walk through all tasks in an order that the needs allow; gives each its waits and clock.

    vEUs go on one after the other, each as far as it can, and around again.

    Attributes
    ----------
    wave : int
        With barriers: the one that runs.
    fence : list of int
        With barriers: how many tasks of each vEU came before the wave.
    done : list of int
        How many ranges of each vEU have run.
    tasks, clocks : list of list
        Of each vEU so far; what gathers waits is a task too.
    left : list of int
        Tasks of each operator that are still to come.
    ends : list of dict
        Of each operator, how many tasks each of its vEUs has up to its last one so far.
    turns : heap of int
        Rounds and the vEUs that go on in them, as one number each.
    held_up : dict
        vEUs whose next task needs an operator that is not complete.
    later : dict
        vEUs whose next task is of a later wave.
    needs : list
        Of each operator that has started.
    shared : dict
        Needs by the operators that have to be complete, as far as the wave goes.
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
        self.barrier = barrier
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
        self.needs: list[_Need | None] = [None] * len(graph.operators)
        self.shared: dict[tuple[int, ...], _Need] = {}
        self.gathered: dict[tuple[bytes, bytes], _Need] = {}
        self.done = [0] * len(veus)
        self.tasks: list[list[RTask]] = [[] for _ in veus]
        self.clocks: list[list[Clock]] = [[] for _ in veus]
        self.start: Clock = np.zeros(len(veus), np.int32)
        self.wave = 0
        self.fence = [0] * len(veus)
        self.turns: list[int] = []
        self.held_up: dict[int, list[int]] = defaultdict(list)
        self.later: dict[int, list[int]] = defaultdict(list)

    def run(self) -> tuple[tuple[RTask, ...], ...]:
        for veu, mine in enumerate(self.veus):
            if mine:
                self.later[self._wave_of(mine[0])].append(veu)
        for wave in sorted({self._wave_of(placed) for veu in self.veus for placed in veu}):
            self.wave, self.fence = wave, list(map(len, self.tasks))
            self.shared.clear()
            self.turns = sorted(self.later.pop(wave, ()))
            while self.turns:
                self._take_turn(*divmod(heappop(self.turns), len(self.veus)))
        for mine, count in zip(self.veus, self.done, strict=True):
            if count < len(mine):
                raise PlanError(self._stuck(mine[count]))
        return tuple(map(tuple, self.tasks))

    def _wave_of(self, placed: Placed) -> int:
        return placed.wave if self.barrier else 0

    def _take_turn(self, turn: int, veu: int) -> None:
        """Take a vEU as far as it can go; whom that lets go on has a turn behind it."""
        mine = self.veus[veu]
        for position in range(self.done[veu], len(mine)):
            placed = mine[position]
            operator = placed.operator
            if self.barrier and placed.wave > self.wave:
                self.later[placed.wave].append(veu)
                return
            need = self.needs[operator]
            if need is None:
                missing = self._missing(operator)
                if missing is not None:
                    self.held_up[missing].append(veu)
                    return
                need = self.needs[operator] = self._need(veu, placed)
            self._append(veu, placed, need)
            self.done[veu] += 1
            self.ends[operator][veu] = len(self.tasks[veu])
            self.left[operator] -= 1
            if not self.left[operator]:
                for other in self.held_up.pop(operator, ()):
                    heappush(self.turns, (turn + (other < veu)) * len(self.veus) + other)

    def _missing(self, operator: int) -> int | None:
        """An operator that has to be complete before this one starts."""
        for before in self.graph.predecessors[operator]:
            if self.left[before]:
                return before
        return None

    def _append(self, veu: int, placed: Placed, need: _Need) -> None:
        """The next task of a vEU."""
        clocks = self.clocks[veu]
        waits, clock = need.after(clocks[-1] if clocks else self.start)
        # They ascend by vEU; its own place implies what is for itself.
        own = bisect_left(waits, veu, key=_VEU_OF)
        if own < len(waits) and waits[own].veu == veu:
            waits = waits[:own] + waits[own + 1 :]
        clocks.append(clock)
        task = RTask(placed.operator, placed.start, placed.stop, waits, placed.wave)
        self.tasks[veu].append(task)

    def _need(self, veu: int, placed: Placed) -> _Need:
        """What an operator has to come after, or what stands in for it; this vEU starts first.

        All tasks of the operator share it; what their own vEUs imply differs.
        """
        before = self.graph.predecessors[placed.operator]
        if before not in self.shared:
            need = self._everything(before)
            if self._is_worth_gathering(before, need):
                need = self._gather(veu, placed, need)
            self.shared[before] = need
        return self.shared[before]

    def _is_worth_gathering(self, before: tuple[int, ...], need: _Need) -> bool:
        """Whether all that wait for the same take longer than one of them and a hand-over."""
        if self.costs is None:
            return False
        here, there = len(need.waits), self.waiting[before]
        fewer = here * there - here - there
        return fewer * self.costs.wait > self.costs.point_to_point

    def _gather(self, veu: int, placed: Placed, need: _Need) -> _Need:
        """What stands in for a need: an rTask before the first that has it, if there is none yet.

        Whoever finds one comes after it in this walk, so that waits form no cycle.
        """
        key = need.veus.tobytes(), need.counts.tobytes()
        if key not in self.gathered:
            self._append(veu, replace(placed, start=0, stop=0), need)
            signal = Wait(veu, len(self.tasks[veu]))
            clock = self.clocks[veu][-1].copy()
            clock[veu] = signal.count
            self.gathered[key] = _Need((signal,), clock)
        return self.gathered[key]

    def _everything(self, operators: Sequence[int]) -> _Need:
        """That operators are complete, and with barriers the waves before."""
        last = self.fence.copy()
        for before in operators:
            for veu, count in self.ends[before].items():
                last[veu] = max(last[veu], count)
        pairs = [(veu, count) for veu, count in enumerate(last) if count]
        if not pairs:
            return _Need((), self.start)
        if len(pairs) == 1:
            # As most have where vEUs are few; arrays of one take long to make.
            ((veu, count),) = pairs
            clock = self.clocks[veu][count - 1].copy()
            clock[veu] = count
            return _Need((Wait(veu, count),), clock)
        wanted, counts = np.array(pairs, np.int32).T
        reached = np.array([self.clocks[veu][count - 1] for veu, count in pairs])
        reached[np.arange(len(pairs)), wanted] = counts
        # A task is implied by another that comes after as many tasks of its vEU, or after more.
        needed = np.add.reduce(reached[:, wanted] >= counts) == 1
        waits = tuple([Wait(*pair) for pair in compress(pairs, needed.tolist())])
        return _Need(waits, np.maximum.reduce(reached))

    def _stuck(self, placed: Placed) -> str:
        name = self.graph.operators[placed.operator].name
        return (
            f"operator {name!r} in wave {placed.wave} is placed before operators that it needs; "
            "order the ranges of every vEU by wave and the waves by the graph"
        )
