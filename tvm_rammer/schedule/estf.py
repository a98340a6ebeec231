"""Earliest start time first: whatever can start next does, on the vEUs where it can."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from tvm_rammer.rprogram.graph import Operator, OperatorGraph
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.fill_veus import Share
from tvm_rammer.schedule.list_schedule import ListSchedule
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.share_tiles import share_tiles
from tvm_rammer.schedule.trials import Trials

#: Ranges of tiles in place of whole operators make more rTasks: only for so much less time.
_WORTH_SHARING = 0.98


def estf(
    graph: OperatorGraph, num_veus: int, costs: CostModel, trials: Trials | None = None
) -> Placement:
    """Earliest-start-time-first list scheduling under contention.

    The problem and the name are those of the thesis "Accelerating CNNs via Inter-operator
    Scheduling". The operator that can start soonest, on the vEU where it can, is committed next;
    among those that can start at the same time it is the one with the longest path behind it (rule
    1). An operator has several vEUs if its path is the critical one or vEUs would idle. rTasks that
    run together and ask for more than ``costs.bandwidth`` stretch each other; an operator joins
    others only if it ends sooner than behind one of them on the same vEU (rule 2).

    Where tiles were stretched, the same is tried as if nobody drew anything, and where vEUs idle,
    with ranges of tiles in place of whole operators (:func:`share_tiles`): simulations decide,
    among the ``trials`` of the graph where others simulate its plans too.
    """
    schedule = ListSchedule(graph, num_veus, costs)
    placement, stretched = place_whole(schedule, costs.bandwidth * costs.complexes(num_veus))
    if num_veus == 1:
        return placement
    trials = trials or Trials(graph, num_veus, costs)
    if stretched:
        heedless, _ = place_whole(ListSchedule(graph, num_veus, costs), inf)
        placement = min(placement, heedless, key=trials.seconds)
    least = max(sum(schedule.areas) / num_veus, max(schedule.ranks, default=0.0))
    if max(schedule.free) <= least / _WORTH_SHARING:
        return placement
    at_most = _WORTH_SHARING * trials.seconds(placement)
    if trials.least >= at_most:
        return placement
    tiles = share_tiles(graph, schedule.chosen, schedule.ranks, num_veus, costs)
    shared = Placement("estf", tiles)
    return shared if trials.seconds(shared) < at_most else placement


def place_whole(schedule: ListSchedule, bandwidth: float) -> tuple[Placement, bool]:
    """Schedule whole operators, and say whether any of them stretches others.

    Parameters
    ----------
    schedule : ListSchedule
        With nothing committed yet.
    bandwidth : float
        Bytes per second that all vEUs draw together without stretching each other.
    """
    traffic, stretched = _Traffic(schedule, bandwidth), False
    queue = _Queue(schedule)
    queue.add(schedule.start())
    while queue:
        operator, veu, now = queue.pop()
        shares = schedule.shares(operator, veu, now, queue.visible_area)
        if traffic.stretch(operator, shares) > 1.0:
            stretched = True
            shares = traffic.together_or_behind(operator, shares)
        released = schedule.commit(operator, shares, traffic.stretch(operator, shares))
        traffic.note(operator, shares)
        queue.add(released)
    return schedule.placement("estf"), stretched


class _Queue:
    """Ready operators, the one with the earliest start first.

    Attributes
    ----------
    visible : heap
        Operators whose inputs every vEU can see by now, by rank.
    visible_area : float
        Their work.
    fresh : list of list
        Operators whose last input a vEU has just completed: until the others see it, which takes
        as long as a wait, only that vEU can start them.
    arriving : heap
        Operators by the time from which every vEU can see their inputs.
    """

    def __init__(self, schedule: ListSchedule) -> None:
        self.schedule = schedule
        self.waiting: set[int] = set()
        self.seen: set[int] = set()
        self.visible: list[tuple[float, int]] = []
        self.visible_area = 0.0
        self.fresh: list[list[int]] = [[] for _ in schedule.free]
        self.arriving: list[tuple[float, float, int]] = []

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def add(self, operators: list[int]) -> None:
        for operator in operators:
            rank = self.schedule.ranks[operator]
            heappush(self.arriving, (self.schedule.visible_from(operator), -rank, operator))
            self.fresh[self.schedule.arrival(operator).veu].append(operator)
            self.waiting.add(operator)

    def pop(self) -> tuple[int, int, float]:
        """The next operator, the vEU to start it on, and when."""
        free = self.schedule.free
        veu = free.index(min(free))
        operator, veu, now = self._on(veu, free[veu]) or self._soonest(veu)
        self.waiting.remove(operator)
        if operator in self.seen:
            self.visible_area -= self.schedule.areas[operator]
        return operator, veu, now

    def _on(self, veu: int, now: float) -> tuple[int, int, float] | None:
        """The most urgent operator that ``veu`` can start now."""
        schedule = self.schedule
        while self.arriving and self.arriving[0][0] <= now:
            _, rank, operator = heappop(self.arriving)
            if operator in self.waiting:
                heappush(self.visible, (rank, operator))
                self.visible_area += self.schedule.areas[operator]
                self.seen.add(operator)
        while self.visible and self.visible[0][1] not in self.waiting:
            heappop(self.visible)
        fresh = [n for n in self.fresh[veu] if schedule.visible_from(n) > now]
        self.fresh[veu] = [n for n in fresh if n in self.waiting]
        own = [(-schedule.ranks[n], n) for n in self.fresh[veu] if schedule.ready_on(n, veu) <= now]
        first = min([*self.visible[:1], *own], default=None)
        return (first[1], veu, now) if first else None

    def _soonest(self, idle: int) -> tuple[int, int, float]:
        """The operator that starts first although ``idle``, the first vEU to be free, waits."""
        schedule = self.schedule
        options = []
        for visible, rank, operator in self.arriving:
            if operator in self.waiting:
                veu = schedule.arrival(operator).veu
                start = max(schedule.free[veu], schedule.ready_on(operator, veu))
                options += [(start, rank, operator, veu), (visible, rank, operator, idle)]
        start, _, operator, veu = min(options)
        return operator, veu, start


class _Traffic:
    """What the vEUs draw from what they share, in bytes per second."""

    def __init__(self, schedule: ListSchedule, bandwidth: float) -> None:
        self.schedule = schedule
        self.bandwidth = bandwidth
        self.drawn = [0.0] * len(schedule.free)
        self.demand = [
            self._demand(operator, area)
            for operator, area in zip(schedule.graph.operators, schedule.areas, strict=True)
        ]

    def _demand(self, operator: Operator, area: float) -> float:
        """What one vEU draws for an operator; alone it is never stretched."""
        nbytes = sum(self.schedule.graph.buffers[b].nbytes for b in set(operator.arguments))
        return min(nbytes / area, self.bandwidth) if area else 0.0

    def stretch(self, operator: int, shares: list[Share]) -> float:
        """How many times longer its tiles take beside those that run when it starts."""
        start = self._start(operator, shares)
        mine = {share.veu for share in shares}
        others = sum(
            drawn
            for veu, drawn in enumerate(self.drawn)
            if veu not in mine and self.schedule.free[veu] > start
        )
        return max(1.0, (others + len(shares) * self.demand[operator]) / self.bandwidth)

    def together_or_behind(self, operator: int, shares: list[Share]) -> list[Share]:
        """The shares, or all of it behind the first to end of those that it would stretch."""
        schedule = self.schedule
        start = self._start(operator, shares)
        running = [v for v, end in enumerate(schedule.free) if self.drawn[v] and end > start]
        if not running:
            return shares
        first = min(running, key=lambda veu: schedule.free[veu])
        behind = [Share(first, schedule.kernels[operator].num_tiles)]
        # A tie, but for rounding, goes to the one vEU: its consumers have less to wait for.
        together = self._end(operator, shares)
        return behind if self._end(operator, behind) <= together * (1 + 1e-9) else shares

    def note(self, operator: int, shares: list[Share]) -> None:
        """Remember what the vEUs run last."""
        for share in shares:
            self.drawn[share.veu] = self.demand[operator]

    def _start(self, operator: int, shares: list[Share]) -> float:
        starts = self.schedule.starts(operator)
        return min(starts[share.veu] for share in shares)

    def _end(self, operator: int, shares: list[Share]) -> float:
        starts = self.schedule.starts(operator)
        time = self.schedule.kernels[operator].tile_time * self.stretch(operator, shares)
        return max(starts[share.veu] + share.tiles * time for share in shares)
