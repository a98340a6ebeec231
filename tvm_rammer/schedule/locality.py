"""Locality: weights and chains stay with a vEU, and what shares a weight runs back to back."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from heapq import heappop, heappush
from math import inf

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.fill_veus import Share
from tvm_rammer.schedule.list_schedule import ListSchedule
from tvm_rammer.schedule.placement import Placement

#: How many of the weights in its cache a vEU looks for next.
_RECENT = 8

#: More operators times vEUs take too long, as each vEU is looked at for each of them: 27 s for an
#: LSTM of 8,000 operators on 264 vEUs, for a plan that took 1.6 times as long as that of ``estf``.
_MOST_LOOKS = 1_500_000


def locality(graph: OperatorGraph, num_veus: int, costs: CostModel) -> Placement:
    """List scheduling by where the data is (as GraphTurbo, OSDI 2023).

    An operator's home is the vEU that has its weight (its largest constant) or else, if the load
    allows, the one that produced most of what it reads. A vEU runs what is at home there: what is
    urgent first, for the makespan is at stake; then what reads no weight, or one that is still in
    its second-level cache, the latest first; then the longest path. One weight of a recurrent
    network so serves as many time steps as are ready (temporal blocking). A vEU without work takes
    over operators of the one that would end last.
    """
    schedule = ListSchedule(graph, num_veus, costs)
    homes = _Homes(schedule, costs.l2_bytes)
    homes.add(schedule.start())
    while homes.waiting:
        veu, now = homes.next_veu()
        operator = homes.choose(veu, now)
        if operator is None:
            homes.sleep(veu, now)
            continue
        homes.remove(operator)
        shares = schedule.shares(operator, veu, now, sum(homes.loads))
        released = schedule.commit(operator, shares)
        homes.note(operator, shares)
        homes.add(released)
    return schedule.placement("locality")


def limit(graph: OperatorGraph, num_veus: int) -> str:
    """Why :func:`locality` had better not place a graph, as in :class:`~.policy.Policy`."""
    looks = len(graph.operators) * num_veus
    if looks <= _MOST_LOOKS:
        return ""
    return (
        f"it looks at every vEU for every operator, up to {_MOST_LOOKS:,} times, "
        f"these would be {looks:,}"
    )


class _Homes:
    """Ready operators, each at one vEU.

    Attributes
    ----------
    waiting : dict
        The home of each ready operator that is not committed yet.
    arriving, ready : list of heap
        Of each vEU: operators by when it can start them; those that it can start, by rank.
    by_weight : dict
        The ready ones once more for each (vEU, weight).
    loads : list of float
        Work of the ready ones.
    wakes : list of float
        When each vEU looks for work next.
    turns, coming : heap of (float, int)
        vEUs by when they look for work, or are to; vEUs by when something arrives that is theirs.
    """

    def __init__(self, schedule: ListSchedule, cache_bytes: int) -> None:
        num_veus = len(schedule.free)
        self.schedule = schedule
        self.weights = [_weight(schedule.graph, n) for n in range(len(schedule.graph.operators))]
        self.caches = [_Cache(schedule.graph, cache_bytes) for _ in range(num_veus)]
        self.weight_homes: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.arriving: list[list[tuple[float, int]]] = [[] for _ in range(num_veus)]
        self.ready: list[list[tuple[float, int]]] = [[] for _ in range(num_veus)]
        self.by_weight: dict[tuple[int, int | None], list[tuple[float, int]]] = defaultdict(list)
        self.assigned = [0.0] * num_veus
        self.loads = [0.0] * num_veus
        self.started: set[int] = set()
        self.wakes = [0.0] * num_veus
        self.turns = [(0.0, veu) for veu in range(num_veus)]
        self.coming: list[tuple[float, int]] = []
        #: While nothing changes: after a time, when the next vEU wakes; the vEU that ends last.
        self._next_wake: tuple[float, float] | None = None
        self._last: int | None = None

    def add(self, operators: list[int]) -> None:
        """Give ready operators a home."""
        for operator in operators:
            home = self._home(operator)
            if (weight := self.weights[operator]) is not None:
                self.weight_homes.setdefault(weight, home)
            time = self.schedule.ready_on(operator, home)
            self.waiting[operator] = home
            self.assigned[home] += self.schedule.areas[operator]
            heappush(self.arriving[home], (time, operator))
            heappush(self.coming, (time, home))
            self._wake(home, max(self.schedule.free[home], min(self.wakes[home], time)))

    def next_veu(self) -> tuple[int, float]:
        """The vEU that looks for work next, and when."""
        while self.wakes[self.turns[0][1]] != self.turns[0][0]:
            heappop(self.turns)
        now, veu = self.turns[0]
        return veu, now

    def choose(self, veu: int, now: float) -> int | None:
        """What a vEU runs next; None if it had better wait."""
        while self.coming and self.coming[0][0] <= now:
            self._arrive(heappop(self.coming)[1], now)
        first = self._top(self.ready[veu])
        if first is None:
            return self._take_over(veu, now)
        if self.schedule.is_urgent(first, now):
            return first
        for weight in (None, *self.caches[veu].latest()):
            hot = self._top(self.by_weight[veu, weight])
            if hot is not None:
                return hot
        return first

    def sleep(self, veu: int, now: float) -> None:
        """Wait for an operator of its own, or until another vEU goes on."""
        if self._next_wake is None or self._next_wake[0] != now:
            self._next_wake = now, min([wake for wake in self.wakes if wake > now], default=inf)
        wake = min([self._next_wake[1], *(time for time, _ in self.arriving[veu][:1])])
        self._wake(veu, wake)
        self._next_wake = now, wake

    def remove(self, operator: int) -> None:
        """An operator is about to be committed."""
        home = self.waiting.pop(operator)
        self.assigned[home] -= self.schedule.areas[operator]
        if operator in self.started:
            self.loads[home] -= self.schedule.areas[operator]
            self._last = None

    def note(self, operator: int, shares: list[Share]) -> None:
        """Remember which vEUs have read the weight, and until when they are busy."""
        self._last = None
        for veu, _ in shares:
            self._wake(veu, self.schedule.free[veu])
            if (weight := self.weights[operator]) is not None:
                self.caches[veu].touch(weight)

    def _wake(self, veu: int, time: float) -> None:
        """Have a vEU look for work at another time."""
        self.wakes[veu] = time
        self._next_wake = None
        heappush(self.turns, (time, veu))

    def _home(self, operator: int) -> int:
        """Where the weight is, else where the inputs are unless another vEU is idler by far."""
        weight = self.weights[operator]
        if weight in self.weight_homes:
            return self.weight_homes[weight]
        ends = [sum(pair) for pair in zip(self.schedule.free, self.assigned, strict=True)]
        idlest = ends.index(min(ends))
        near = self._producer(operator)
        allowed = ends[idlest] + self.schedule.areas[operator]
        return near if near is not None and ends[near] <= allowed else idlest

    def _producer(self, operator: int) -> int | None:
        """The vEU that produced most bytes of the operator's inputs."""
        graph = self.schedule.graph
        votes: Counter[int] = Counter()
        for buffer in graph.operators[operator].arguments:
            writers = graph.writers[buffer]
            for before in writers:
                if before != operator:
                    nbytes = graph.buffers[buffer].nbytes // len(writers)
                    votes[self.schedule.ran_on(before)] += nbytes
        return max(votes, key=lambda veu: (votes[veu], -veu), default=None)

    def _arrive(self, veu: int, now: float) -> None:
        arriving = self.arriving[veu]
        while arriving and arriving[0][0] <= now:
            _, operator = heappop(arriving)
            if operator in self.waiting:
                entry = (-self.schedule.ranks[operator], operator)
                heappush(self.ready[veu], entry)
                heappush(self.by_weight[veu, self.weights[operator]], entry)
                self.loads[veu] += self.schedule.areas[operator]
                self.started.add(operator)
                self._last = None

    def _top(self, heap: list[tuple[float, int]]) -> int | None:
        while heap and heap[0][1] not in self.waiting:
            heappop(heap)
        return heap[0][1] if heap else None

    def _take_over(self, veu: int, now: float) -> int | None:
        """The first operator of the vEU that ends last, if that vEU is behind by more than it.

        By twice as much if it has the operator's weight in its cache.
        """
        if self._last is None:
            ends = [sum(pair) for pair in zip(self.schedule.free, self.loads, strict=True)]
            self._last = ends.index(max(ends))
        last = self._last
        operator = self._top(self.ready[last])
        if operator is None:
            return None
        end = self.schedule.free[last] + self.loads[last]
        behind = end - now - self.schedule.costs.point_to_point
        price = 2 if self.weights[operator] in self.caches[last].weights else 1
        return operator if behind >= price * self.schedule.areas[operator] else None


class _Cache:
    """The weights that a vEU has read last, as many as fit."""

    def __init__(self, graph: OperatorGraph, nbytes: int) -> None:
        self.graph = graph
        self.nbytes = nbytes
        self.weights: OrderedDict[int, int] = OrderedDict()

    def touch(self, weight: int) -> None:
        """A weight is read; the one that was not for longest makes room."""
        self.weights[weight] = self.graph.buffers[weight].nbytes
        self.weights.move_to_end(weight)
        while len(self.weights) > _RECENT or sum(self.weights.values()) > self.nbytes:
            self.weights.popitem(last=False)

    def latest(self) -> list[int]:
        """What is in the cache, the latest first."""
        return list(reversed(self.weights))


def _weight(graph: OperatorGraph, operator: int) -> int | None:
    """The largest constant that an operator reads."""
    constants = [
        b for b in graph.operators[operator].arguments if graph.buffers[b].space == "constant"
    ]
    return max(constants, key=lambda b: graph.buffers[b].nbytes, default=None)
