"""The best schedule of a small graph, by branch and bound, to judge policies by.

Tiles are placed one after the other in the order in which they start. Every schedule can be built
so, also those in which vEUs wait although they have something to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from fuzzing.random_graphs import Shape, random_edges

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.rprogram.program import CELLS, Mode
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.placement import Placed, Placement, split

#: Searching stops after so many partial schedules; about 40 us each.
_BUDGET = 100_000

_READS: tuple[Mode, ...] = ("read",) * 64

#: Sums of floats: this much sooner is not sooner; so many digits of seconds are kept.
_ROUNDING = 1e-9
_DIGITS = 15


def small_graph(rng: np.random.Generator, shape: Shape, operators: int) -> OperatorGraph:
    """A graph of operators with one candidate each: 1 to 3 tiles of 1 to 10 microseconds.

    Results have 4 to 64 KiB. Each tile writes its part; it reads all of what its operator reads, or
    the same part of it and a little of what lies beside that (a halo).

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
        size = int(rng.integers(1, 17)) << 10
        buffers.append(Buffer(f"result{number}", (size,), "float32", "arena"))
        reads = [p + 1 for p in before] or [0]
        tiles = int(rng.integers(1, 4))
        read = _parts(tiles, int(rng.choice([0, 8, CELLS])))
        kernel = RKernel(
            f"body{number}",
            tiles,
            (*_READS[: len(reads)], "write"),
            float(rng.integers(1, 11)) * 1e-6,
            footprints=(*(read for _ in reads), _parts(tiles, 0)),
        )
        made.append(Operator(f"operator{number}", (kernel,), (*reads, number + 1)))
    return OperatorGraph(f"{shape}{operators}", tuple(buffers), tuple(made))


def _parts(tiles: int, halo: int) -> tuple[int, ...]:
    """The cells of equal parts, one for each tile, and so many cells beside them."""
    return tuple(
        (1 << min(CELLS, stop + halo)) - (1 << max(0, start - halo))
        for start, stop in split(CELLS, tiles)
    )


@dataclass(frozen=True)
class Optimum:
    """What a search has found.

    Attributes
    ----------
    makespan : float
        Of the best schedule.
    least : float
        What no schedule can beat: the same if that is proved.
    proved : bool
        Whether no other schedule can end sooner.
    placement : Placement or None
        The best schedule; None if none ends sooner than what was known.
    """

    makespan: float
    least: float
    proved: bool
    placement: Placement | None = None


def best_makespan(
    graph: OperatorGraph,
    num_veus: int,
    costs: CostModel,
    at_most: float = inf,
    budget: int = _BUDGET,
) -> Optimum:
    """Search all schedules of a graph's first candidates.

    Tiles take the time that their kernels state, and what they wait for data of other vEUs, which
    stay in the caches of those (:class:`~.transfers.Transfers`); a range of tiles that a vEU runs
    in a row waits once for the first of them. Between vEUs an operator's results take
    ``costs.point_to_point``. What else runs costs nothing, and all vEUs are of one complex.

    Parameters
    ----------
    graph : OperatorGraph
        Each operator writes one buffer whole.
    num_veus : int
    costs : CostModel
    at_most : float
        The makespan of a schedule that is known: the search looks for a better one.
    budget : int
        Partial schedules to look at.
    """
    search = _Search(graph, num_veus, costs, at_most, budget)
    search.run()
    proved = search.looked_at <= budget
    least = search.best if proved else min(search.best, search.least())
    return Optimum(search.best, least, proved, search.placement())


class _Tile(NamedTuple):
    operator: int
    number: int


_NOTHING = _Tile(-1, -1)


class _Veu(NamedTuple):
    """What a vEU has done so far.

    Attributes
    ----------
    free : float
        When it has run what it got.
    tile : _Tile
        What it ran last.
    paid : bool
        Whether the range that ends with this tile has waited for data of others.
    ends : tuple of float
        When it ends its tiles of each operator; minus infinity if it has none.
    wrote, fetched : tuple of int
        The cells of each operator's result that it wrote, and that it has read.
    """

    free: float
    tile: _Tile
    paid: bool
    ends: tuple[float, ...]
    wrote: tuple[int, ...]
    fetched: tuple[int, ...]


@dataclass(frozen=True)
class _State:
    """A partial schedule.

    Attributes
    ----------
    veus : tuple of _Veu
    left : tuple of int
        The tiles of each operator that are not placed, as bits.
    start, tile
        When the tile started that was placed last, and which it is.
    veu, before
        Where it was placed, and the schedule without it.
    """

    veus: tuple[_Veu, ...]
    left: tuple[int, ...]
    start: float = 0.0
    tile: _Tile = _NOTHING
    veu: int = 0
    before: _State | None = None


class _Search:
    def __init__(
        self, graph: OperatorGraph, num_veus: int, costs: CostModel, at_most: float, budget: int
    ) -> None:
        self.graph = graph
        self.num_veus = num_veus
        self.costs = costs
        self.kernels = [op.candidates[0] for op in graph.operators]
        self.times = [kernel.tile_time for kernel in self.kernels]
        self.tiles = [kernel.num_tiles for kernel in self.kernels]
        self.best = at_most
        self.found: _State | None = None
        self.budget = budget
        self.looked_at = 0
        self.seen: set[tuple[object, ...]] = set()
        self.nbytes = [0] * len(self.kernels)
        for buffer, number in graph.producers.items():
            self.nbytes[number] = graph.buffers[buffer].nbytes
        self.reads = [self._reads(number) for number in range(len(self.kernels))]
        self.writes = [
            [kernel.touched(kernel.modes.index("write"), t, t + 1) for t in range(kernel.num_tiles)]
            for kernel in self.kernels
        ]
        self.shortest = [self._least_seconds(number) for number in range(len(self.kernels))]
        self.tails = [0.0] * len(self.times)
        for number in reversed(range(len(self.times))):
            after = max((self.tails[s] for s in graph.successors[number]), default=0.0)
            self.tails[number] = self.shortest[number] + after

    def _reads(self, number: int) -> list[list[tuple[int, int]]]:
        """For each tile the operators whose results it reads, and which cells of them."""
        kernel = self.kernels[number]
        found = []
        for tile in range(kernel.num_tiles):
            cells: dict[int, int] = {}
            for pointer, buffer in enumerate(self.graph.operators[number].arguments):
                if kernel.modes[pointer] == "read" and buffer in self.graph.producers:
                    producer = self.graph.producers[buffer]
                    touched = kernel.touched(pointer, tile, tile + 1)
                    cells[producer] = cells.get(producer, 0) | touched
            found.append(list(cells.items()))
        return found

    def run(self) -> None:
        """Find ``best``."""
        count = len(self.times)
        idle = _Veu(self.costs.launch, _NOTHING, False, (-inf,) * count, (0,) * count, (0,) * count)
        left = tuple((1 << tiles) - 1 for tiles in self.tiles)
        stack = [_State((idle,) * self.num_veus, left)]
        while stack:
            state = stack.pop()
            if not self._may_win(state):
                continue
            if not any(state.left):
                self.best, self.found = max(veu.free for veu in state.veus), state
                continue
            self.looked_at += 1
            if self.looked_at > self.budget:
                return
            stack += self._children(state)

    def placement(self) -> Placement | None:
        """The best schedule; tiles that a vEU runs in a row are one range."""
        if self.found is None:
            return None
        placed: list[list[Placed]] = [[] for _ in range(self.num_veus)]
        states, state = [], self.found
        while state.before is not None:
            states.append(state)
            state = state.before
        for state in reversed(states):
            mine, (operator, tile) = placed[state.veu], state.tile
            first = tile
            if mine and (mine[-1].operator, mine[-1].stop) == (operator, tile):
                first = mine.pop().start
            mine.append(Placed(operator, 0, first, tile + 1, 0))
        return Placement("optimal", tuple(map(tuple, placed)))

    def _may_win(self, state: _State) -> bool:
        """Whether the work that is left, and every path, fits in before the best schedule ends."""
        limit, times = self.best * (1 - _ROUNDING), self.times
        counts = [left.bit_count() for left in state.left]
        work = sum(left * time for left, time in zip(counts, times, strict=True))
        free = [max(veu.free, state.start) for veu in state.veus]
        if (sum(free) + work) / self.num_veus >= limit or max(free) >= limit:
            return False
        soonest = min(free)
        ends = [0.0] * len(times)
        placed = [max(ends) for ends in zip(*(veu.ends for veu in state.veus), strict=True)]
        for number, left in enumerate(counts):
            before = self.graph.predecessors[number]
            ready = max((ends[p] for p in before), default=self.costs.launch)
            untouched = left == self.tiles[number]
            own = self.shortest[number] if untouched else -(-left // self.num_veus) * times[number]
            ends[number] = max(placed[number], (max(ready, soonest) + own) if left else ready)
            if ends[number] + self.tails[number] - self.shortest[number] >= limit:
                return False
        return True

    def _children(self, state: _State) -> list[_State]:
        """All ways to place the next tile, the most promising last."""
        found = []
        different = {veu: number for number, veu in reversed([*enumerate(state.veus)])}
        for number, left in enumerate(state.left):
            if left and not any(state.left[p] for p in self.graph.predecessors[number]):
                for tile in (t for t in range(self.tiles[number]) if left >> t & 1):
                    for veu in different.values():
                        start = max(state.veus[veu].free, self._ready(state, number, veu))
                        if (start, number, tile) >= (state.start, *state.tile):
                            stop, paid = self._stop(state, veu, number, tile, start)
                            found.append(
                                (-start, -stop, self.tails[number], veu, number, -tile, paid)
                            )
        children = (
            self._place(state, -start, -stop, veu, _Tile(number, -tile), paid)
            for start, stop, _, veu, number, tile, paid in sorted(found)
        )
        return [child for child in children if self._is_fresh(child)]

    def _ready(self, state: _State, number: int, veu: int) -> float:
        """When a vEU sees all that an operator reads."""
        wait = self.costs.point_to_point
        return max(
            (
                each.ends[before] + (wait if other != veu else 0.0)
                for before in self.graph.predecessors[number]
                for other, each in enumerate(state.veus)
            ),
            default=0.0,
        )

    def _stop(
        self, state: _State, veu: int, number: int, tile: int, start: float
    ) -> tuple[float, bool]:
        """When a tile ends, and whether its range has then waited for data of others."""
        mine = state.veus[veu]
        moved = 0.0
        for producer, cells in self.reads[number][tile]:
            others = 0
            for other, each in enumerate(state.veus):
                if other != veu:
                    others |= each.wrote[producer]
            new = cells & others & ~mine.wrote[producer] & ~mine.fetched[producer]
            moved += new.bit_count() / CELLS * self.nbytes[producer]
        paid = mine.paid and mine.tile == (number, tile - 1)
        seconds = self.times[number] + moved * self.costs.transfer_byte
        if moved and not paid:
            seconds += self.costs.transfer
        return round(start + seconds, _DIGITS), paid or moved > 0

    def _place(
        self, state: _State, start: float, stop: float, veu: int, tile: _Tile, paid: bool
    ) -> _State:
        number, mine = tile.operator, state.veus[veu]
        fetched = list(mine.fetched)
        for producer, cells in self.reads[number][tile.number]:
            fetched[producer] |= cells
        wrote = mine.wrote[number] | self.writes[number][tile.number]
        mine = _Veu(
            stop,
            tile,
            paid,
            (*mine.ends[:number], stop, *mine.ends[number + 1 :]),
            (*mine.wrote[:number], wrote, *mine.wrote[number + 1 :]),
            tuple(fetched),
        )
        left = list(state.left)
        left[number] &= ~(1 << tile.number)
        veus = (*state.veus[:veu], mine, *state.veus[veu + 1 :])
        if not left[number]:
            veus = self._without_what_nobody_reads(veus, number, left)
        return _State(veus, tuple(left), start, tile, veu, state)

    def _without_what_nobody_reads(
        self, veus: tuple[_Veu, ...], number: int, left: list[int]
    ) -> tuple[_Veu, ...]:
        """States that differ in nothing else are one; ``number`` is placed whole."""
        dead = {
            before
            for before in (*self.graph.predecessors[number], number)
            if not any(left[after] for after in self.graph.successors[before])
        }
        if not dead:
            return veus
        found = []
        for veu in veus:
            ends = tuple(-inf if n in dead else end for n, end in enumerate(veu.ends))
            wrote = tuple(0 if n in dead else cells for n, cells in enumerate(veu.wrote))
            fetched = tuple(0 if n in dead else cells for n, cells in enumerate(veu.fetched))
            found.append(veu._replace(ends=ends, wrote=wrote, fetched=fetched))
        return tuple(found)

    def _is_fresh(self, state: _State) -> bool:
        """Whether no other order of the same tiles, or on other vEUs, has led to this state."""
        key = (tuple(sorted(state.veus)), state.left, state.start, state.tile)
        fresh = key not in self.seen
        self.seen.add(key)
        return fresh

    def least(self) -> float:
        """What no schedule can beat: the longest path, or all work over the vEUs."""
        work = sum(n * time for n, time in zip(self.tiles, self.times, strict=True))
        return self.costs.launch + max(*self.tails, work / self.num_veus)

    def _least_seconds(self, number: int) -> float:
        """Seconds that an operator takes at least, from the end of what it reads.

        Either a single vEU runs it, or one of several has written at most half of what it reads,
        if each tile reads all; it fetches the rest, if nobody else can have had it fetched.
        """
        tiles, time = self.tiles[number], self.times[number]
        spread = -(-tiles // self.num_veus) * time
        everything = (1 << CELLS) - 1
        moved = sum(
            self.nbytes[before]
            for before, cells in self.reads[number][0]
            if cells == everything and self.graph.successors[before] == (number,)
        )
        if all(each == self.reads[number][0] for each in self.reads[number]) and moved:
            spread = max(spread, time + self.costs.transfer + moved / 2 * self.costs.transfer_byte)
        return min(spread, tiles * time)
