"""A list schedule that grows: who is ready when and where, and how vEUs share an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.fill_veus import Share, fill_veus
from tvm_rammer.schedule.interplay import area, fastest_time
from tvm_rammer.schedule.placement import Placed, Placement
from tvm_rammer.schedule.ranks import choose_by_level, upward_ranks

#: Sums of floats: this much later is not later.
_ROUNDING = 1 + 1e-9


class Arrival(NamedTuple):
    """When the inputs of an operator are there: at ``time``, when ``veu`` ends the last of them.

    ``others`` is when the last input from another vEU is complete.
    """

    time: float
    veu: int
    others: float


class ListSchedule:
    """Operators are committed one by one, each after its producers; vEUs only ever fill up.

    Attributes
    ----------
    free : list of float
        When each vEU has run all that it got.
    areas, ranks : list of float
        vEU-seconds of each operator; seconds from its start to the end of the longest path behind
        it.
    """

    def __init__(self, graph: OperatorGraph, num_veus: int, costs: CostModel) -> None:
        self.graph = graph
        self.costs = costs
        self.chosen = choose_by_level(graph, graph.levels, num_veus, costs)
        self.kernels = [
            op.candidates[c] for op, c in zip(graph.operators, self.chosen, strict=True)
        ]
        self.areas = list(map(area, self.kernels))
        self.ranks = upward_ranks(graph, self.kernels, num_veus, costs)
        self.free = [0.0] * num_veus
        self._left = list(map(len, graph.predecessors))
        self._ends: list[list[tuple[int, float]]] = [[] for _ in self.kernels]
        self._arrivals: dict[int, Arrival] = {}
        self._remaining = sum(self.areas)
        self._veus: list[list[Placed]] = [[] for _ in range(num_veus)]
        self._wave_of = [0] * len(self.kernels)

    def start(self) -> list[int]:
        """The operators that need no other one."""
        return self._now_ready([n for n, count in enumerate(self._left) if not count])

    def arrival(self, operator: int) -> Arrival:
        """When and where the inputs of a ready operator are complete."""
        return self._arrivals[operator]

    def visible_from(self, operator: int) -> float:
        """When every vEU can see the inputs of a ready operator."""
        return self._arrivals[operator].time + self.costs.point_to_point

    def ready_on(self, operator: int, veu: int) -> float:
        """When a vEU may start an operator, as far as its inputs go."""
        time, last, others = self._arrivals[operator]
        wait = self.costs.point_to_point
        return max(time, others + wait) if veu == last else time + wait

    def starts(self, operator: int) -> list[float]:
        """When each vEU may start an operator."""
        visible = self.visible_from(operator)
        found = [free if free > visible else visible for free in self.free]
        last = self._arrivals[operator].veu
        found[last] = max(self.free[last], self.ready_on(operator, last))
        return found

    def deadline(self, operator: int, now: float) -> float:
        """How late an operator may end without delaying what the makespan is at least.

        That is the work that is left, spread evenly, or the longest path from here.
        """
        ends = [free if free > now else now for free in self.free]
        work = (sum(ends) + self._remaining) / len(self.free)
        rank = self.ranks[operator]
        own = fastest_time(self.kernels[operator], len(self.free), self.costs)
        return max(work, now + rank) - (rank - own)

    def is_urgent(self, operator: int, now: float) -> bool:
        """Whether any delay of an operator delays what the makespan is at least."""
        own = fastest_time(self.kernels[operator], len(self.free), self.costs)
        return self.deadline(operator, now) <= (now + own) * _ROUNDING

    def ran_on(self, operator: int) -> int:
        """The vEU that ended a committed operator."""
        return max(self._ends[operator], key=lambda end: end[1])[0]

    def shares(self, operator: int, veu: int, now: float, beside: float) -> list[Share]:
        """How the vEUs share an operator: ``veu`` alone if nobody then waits for it.

        It may take until its deadline and until all vEUs have run what can start now (but is always
        given as long as all vEUs together need). What does not fit on ``veu`` fills up the vEUs
        that can start soonest (:func:`~.fill_veus.fill_veus`), if that is worth the wait of the
        consumers.

        Parameters
        ----------
        operator : int
        veu : int
            The one that it had best start on.
        now : float
            When.
        beside : float
            Work of the other operators that can start now.
        """
        kernel, work = self.kernels[operator], self.areas[operator]
        alone = [Share(veu, kernel.num_tiles)]
        starts = self.starts(operator)
        end = starts[veu] + work
        soon = water_level(starts, work)
        busy = water_level([max(free, now) for free in self.free], work + beside)
        level = _ROUNDING * max(soon, min(busy, self.deadline(operator, now)))
        wait = self.costs.point_to_point
        if end <= level + wait or kernel.num_tiles < 2:
            return alone
        shares = fill_veus(starts, kernel.num_tiles, kernel.tile_time, level)
        last = max(starts[share.veu] + share.tiles * kernel.tile_time for share in shares)
        return shares if last + wait < end else alone

    def commit(self, operator: int, shares: Sequence[Share], stretch: float = 1.0) -> list[int]:
        """Append an operator to vEUs; return the operators that are ready now.

        ``stretch`` is how many times longer than alone its tiles take.
        """
        wave = self._wave(operator, shares)
        start = 0
        for veu, tiles in sorted(shares):
            seconds = self.costs.row + tiles * self.kernels[operator].tile_time * stretch
            self.free[veu] = max(self.free[veu], self.ready_on(operator, veu)) + seconds
            self._ends[operator].append((veu, self.free[veu]))
            piece = Placed(operator, self.chosen[operator], start, start + tiles, wave)
            self._veus[veu].append(piece)
            start += tiles
        self._wave_of[operator] = wave
        self._remaining -= self.areas[operator]
        released = []
        for after in self.graph.successors[operator]:
            self._left[after] -= 1
            if not self._left[after]:
                released.append(after)
        return self._now_ready(released)

    def placement(self, policy: str) -> Placement:
        """The finished schedule; a wave is a stretch of it between two waits across vEUs."""
        return Placement(policy, tuple(map(tuple, self._veus)))

    def _now_ready(self, operators: list[int]) -> list[int]:
        for operator in operators:
            latest: dict[int, float] = {}
            for before in self.graph.predecessors[operator]:
                for veu, end in self._ends[before]:
                    latest[veu] = max(latest.get(veu, 0.0), end)
            last = max(latest, key=lambda veu: (latest[veu], -veu), default=0)
            time = latest.pop(last, -self.costs.point_to_point)
            others = max(latest.values(), default=-self.costs.point_to_point)
            self._arrivals[operator] = Arrival(time, last, others)
        return operators

    def _wave(self, operator: int, shares: Sequence[Share]) -> int:
        """Not before the waves of its vEUs, and after those of what it waits for."""
        mine = {share.veu for share in shares}
        wave = max((self._veus[veu][-1].wave for veu in mine if self._veus[veu]), default=0)
        for before in self.graph.predecessors[operator]:
            crosses = any({veu} != mine for veu, _ in self._ends[before])
            wave = max(wave, self._wave_of[before] + crosses)
        return wave


def water_level(starts: Sequence[float], work: float) -> float:
    """When all vEUs end if they start at ``starts`` and share ``work`` evenly.

    >>> water_level([0.0, 4.0, 9.0], 6.0)
    5.0
    """
    filled = 0.0
    level = 0.0
    for count, start in enumerate(sorted(starts)):
        if count and level <= start:
            break
        filled += start
        level = (filled + work) / (count + 1)
    return level
