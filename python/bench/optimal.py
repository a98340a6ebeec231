"""The best schedule of a small graph, by branch and bound, to judge policies by.

Tiles are placed one after the other in the order in which they start. Every schedule can be built
so, also those in which vEUs wait although they have something to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.rprogram.program import Mode
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.testing.random_graphs import Shape, random_edges

#: Searching stops after so many partial schedules; about 20 us each.
_BUDGET = 100_000

_READS: tuple[Mode, ...] = ("read",) * 64

#: Sums of floats: this much sooner is not sooner.
_ROUNDING = 1e-9


def small_graph(rng: np.random.Generator, shape: Shape, operators: int) -> OperatorGraph:
    """A graph of operators with one candidate each: 1 to 3 tiles of 1 to 10 microseconds.

    Parameters
    ----------
    rng : numpy.random.Generator
    shape : Shape
        See :func:`~.random_graphs.random_graph`.
    operators : int
    """
    edges = random_edges(rng, shape, operators)
    buffers = [Buffer("input", (16,), "float32", "input")]
    made = []
    for number, before in enumerate(edges):
        buffers.append(Buffer(f"result{number}", (16,), "float32", "arena"))
        reads = [p + 1 for p in before] or [0]
        kernel = RKernel(
            f"body{number}",
            int(rng.integers(1, 4)),
            (*_READS[: len(reads)], "write"),
            float(rng.integers(1, 11)) * 1e-6,
        )
        made.append(Operator(f"operator{number}", (kernel,), (*reads, number + 1)))
    return OperatorGraph(f"{shape}{operators}", tuple(buffers), tuple(made))


@dataclass(frozen=True)
class Optimum:
    """The makespan of the best schedule found, and whether no other one can end sooner."""

    makespan: float
    proved: bool


def best_makespan(
    graph: OperatorGraph,
    num_veus: int,
    costs: CostModel,
    at_most: float = inf,
    budget: int = _BUDGET,
) -> Optimum:
    """Search all schedules of a graph's first candidates.

    Tiles take the time that their kernels state, wherever their data is and whatever runs beside
    them; between vEUs an operator's results take ``costs.point_to_point``.

    Parameters
    ----------
    graph : OperatorGraph
    num_veus : int
    costs : CostModel
    at_most : float
        The makespan of a schedule that is known: the search looks for a better one.
    budget : int
        Partial schedules to look at.
    """
    search = _Search(graph, num_veus, costs, at_most, budget)
    search.run()
    return Optimum(search.best, search.looked_at <= budget)


@dataclass(frozen=True)
class _State:
    """A partial schedule.

    Attributes
    ----------
    free : tuple of float
        When each vEU has run what it got.
    left : tuple of int
        Tiles of each operator that are not placed.
    ends : tuple of tuple of float
        When each vEU ends its tiles of each operator; minus infinity if it has none.
    last : tuple of (float, int)
        When, and on which vEU, the tile started that was placed last.
    """

    free: tuple[float, ...]
    left: tuple[int, ...]
    ends: tuple[tuple[float, ...], ...]
    last: tuple[float, int]


class _Search:
    def __init__(
        self, graph: OperatorGraph, num_veus: int, costs: CostModel, at_most: float, budget: int
    ) -> None:
        self.graph = graph
        self.num_veus = num_veus
        self.wait = costs.point_to_point
        self.launch = costs.launch
        self.times = [op.candidates[0].tile_time for op in graph.operators]
        self.tiles = [op.candidates[0].num_tiles for op in graph.operators]
        self.best = at_most
        self.budget = budget
        self.looked_at = 0
        self.seen: set[tuple[object, ...]] = set()
        self.tails = [0.0] * len(self.times)
        for number in reversed(range(len(self.times))):
            after = max((self.tails[s] for s in graph.successors[number]), default=0.0)
            self.tails[number] = self._shortest(number, self.tiles[number]) + after

    def run(self) -> None:
        """Find ``best``."""
        nowhere = ((-inf,) * self.num_veus,) * len(self.times)
        stack = [_State((self.launch,) * self.num_veus, tuple(self.tiles), nowhere, (0.0, -1))]
        while stack:
            state = stack.pop()
            if not self._may_win(state):
                continue
            if not any(state.left):
                self.best = max(state.free)
                continue
            self.looked_at += 1
            if self.looked_at > self.budget:
                return
            stack += self._children(state)

    def _may_win(self, state: _State) -> bool:
        """Whether the work that is left, and every path, fits in before the best schedule ends."""
        limit = self.best * (1 - _ROUNDING)
        work = sum(left * time for left, time in zip(state.left, self.times, strict=True))
        free = [max(time, state.last[0]) for time in state.free]
        if (sum(free) + work) / self.num_veus >= limit or max(state.free) >= limit:
            return False
        soonest = min(free)
        ends = [0.0] * len(self.times)
        for number, left in enumerate(state.left):
            before = self.graph.predecessors[number]
            ready = max((ends[p] for p in before), default=self.launch)
            own = self._shortest(number, left)
            ends[number] = max(*state.ends[number], (max(ready, soonest) + own) if left else ready)
            if (
                ends[number] + self.tails[number] - self._shortest(number, self.tiles[number])
                >= limit
            ):
                return False
        return True

    def _children(self, state: _State) -> list[_State]:
        """All ways to place the next tile, the most promising last."""
        found = []
        for number, left in enumerate(state.left):
            before = self.graph.predecessors[number]
            if left and not any(state.left[p] for p in before):
                for veu in self._different_veus(state):
                    start = max(state.free[veu], self._ready(state, number, veu))
                    if (start, veu) >= state.last:
                        found.append((-start, self.tails[number], veu, number))
        children = (self._place(state, -start, veu, n) for start, _, veu, n in sorted(found))
        return [child for child in children if self._is_fresh(child)]

    def _different_veus(self, state: _State) -> list[int]:
        """All vEUs that have run something, and one of those that have not."""
        used = [veu for veu, free in enumerate(state.free) if free > self.launch]
        return [*used, *[v for v in range(self.num_veus) if v not in used][:1]]

    def _ready(self, state: _State, number: int, veu: int) -> float:
        """When a vEU sees all that an operator reads."""
        return max(
            (
                end + (self.wait if other != veu else 0.0)
                for before in self.graph.predecessors[number]
                for other, end in enumerate(state.ends[before])
            ),
            default=0.0,
        )

    def _place(self, state: _State, start: float, veu: int, number: int) -> _State:
        stop = start + self.times[number]
        free = (*state.free[:veu], stop, *state.free[veu + 1 :])
        left = (*state.left[:number], state.left[number] - 1, *state.left[number + 1 :])
        own = state.ends[number]
        ends = (
            *state.ends[:number],
            (*own[:veu], stop, *own[veu + 1 :]),
            *state.ends[number + 1 :],
        )
        return _State(free, left, ends, (start, veu))

    def _is_fresh(self, state: _State) -> bool:
        """Whether no other order of the same tiles has led to this state."""
        key = (state.free, state.left, state.ends, state.last)
        fresh = key not in self.seen
        self.seen.add(key)
        return fresh

    def _shortest(self, number: int, tiles: int) -> float:
        """Seconds that so many tiles take on all vEUs."""
        return -(-tiles // self.num_veus) * self.times[number]
