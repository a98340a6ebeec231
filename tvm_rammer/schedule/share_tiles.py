"""A list schedule of tiles: operators with time to spare make way for what has become urgent.

Whole operators are the right unit where waits cost more than a tile. Where tiles are long, an
operator that has started holds up the longest path until its last tile ends; here only until the
current range of tiles ends, and all vEUs share the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RKernel
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.placement import Placed

#: An operator is handed out in about so many ranges for each vEU, the last ones short.
_RANGES = 2


def share_tiles(
    graph: OperatorGraph,
    chosen: Sequence[int],
    ranks: Sequence[float],
    num_veus: int,
    costs: CostModel,
) -> tuple[tuple[Placed, ...], ...]:
    """What each vEU runs: whoever is free takes a range of the operator with the longest path.

    Parameters
    ----------
    graph : OperatorGraph
    chosen : sequence of int
        The candidate of each operator.
    ranks : sequence of float
        Seconds from each operator's start to the end of the longest path behind it.
    num_veus : int
    costs : CostModel
    """
    return _Sharing(graph, chosen, ranks, num_veus, costs).run()


class _Sharing:
    def __init__(
        self,
        graph: OperatorGraph,
        chosen: Sequence[int],
        ranks: Sequence[float],
        num_veus: int,
        costs: CostModel,
    ) -> None:
        self.graph = graph
        self.chosen = chosen
        self.ranks = ranks
        self.wait = costs.point_to_point
        self.kernels: list[RKernel] = [
            op.candidates[c] for op, c in zip(graph.operators, chosen, strict=True)
        ]
        self.free = [0.0] * num_veus
        self.given = [0] * len(chosen)
        self.missing = list(map(len, graph.predecessors))
        self.ends: list[list[float]] = [[-inf] * num_veus for _ in chosen]
        self.waves: list[list[int]] = [[-1] * num_veus for _ in chosen]
        # By vEU: the first wave in which an operator may run there.
        self.first_waves: dict[int, list[int]] = {}
        self.veus: list[list[Placed]] = [[] for _ in range(num_veus)]
        # By vEU: operators that it can start once their inputs arrive, and those that it can now.
        self.arriving: list[list[tuple[float, int]]] = [[] for _ in range(num_veus)]
        self.ready: list[list[tuple[float, int]]] = [[] for _ in range(num_veus)]
        self.left = len(chosen)

    def run(self) -> tuple[tuple[Placed, ...], ...]:
        for number, count in enumerate(self.missing):
            if not count:
                self._offer(number)
        while self.left:
            now = min(self.free)
            veu = self.free.index(now)
            operator = self._first(veu, now)
            if operator is None:
                later = [time for time in self.free if time > now]
                arriving = self.arriving[veu][:1]
                self.free[veu] = min([*later, *(time for time, _ in arriving)])
            else:
                self._give(veu, operator, now)
        return tuple(map(tuple, self.veus))

    def _offer(self, operator: int) -> None:
        """An operator whose producers are all placed."""
        if not self.kernels[operator].num_tiles:
            self._complete(operator)
            return
        before = self.graph.predecessors[operator]
        ends = list(map(max, zip(*(self.ends[p] for p in before), strict=True)))
        waves = list(map(max, zip(*(self.waves[p] for p in before), strict=True)))
        self.first_waves[operator] = [
            max(own, others + 1) for own, others in _own_and_others(waves, len(self.free), -1)
        ]
        for veu, (own, others) in enumerate(_own_and_others(ends, len(self.free), -inf)):
            heappush(self.arriving[veu], (max(0.0, own, others + self.wait), operator))

    def _first(self, veu: int, now: float) -> int | None:
        arriving, ready = self.arriving[veu], self.ready[veu]
        while arriving and arriving[0][0] <= now:
            _, operator = heappop(arriving)
            heappush(ready, (-self.ranks[operator], operator))
        for heap in (ready, arriving):
            while heap and self._is_given(heap[0][1]):
                heappop(heap)
        return ready[0][1] if ready else None

    def _is_given(self, operator: int) -> bool:
        return self.given[operator] >= self.kernels[operator].num_tiles

    def _give(self, veu: int, operator: int, now: float) -> None:
        """A range of tiles; all that are left if sharing them costs more than it gains."""
        kernel = self.kernels[operator]
        left = kernel.num_tiles - self.given[operator]
        tiles = max(1, left // (_RANGES * len(self.free)))
        tiles = max(tiles, int(2 * self.wait / kernel.tile_time) if kernel.tile_time else left)
        tiles = left if left < 2 * tiles and left * kernel.tile_time <= 4 * self.wait else tiles
        start, stop = self.given[operator], self.given[operator] + min(tiles, left)
        self.given[operator] = stop
        self.free[veu] = self.ends[operator][veu] = now + (stop - start) * kernel.tile_time
        self._append(veu, Placed(operator, self.chosen[operator], start, stop, 0))
        if stop == kernel.num_tiles:
            self._complete(operator)

    def _append(self, veu: int, piece: Placed) -> None:
        """One range with the one before it if it continues that one."""
        mine, number = self.veus[veu], piece.operator
        wave = mine[-1].wave if mine else 0
        wave = max(wave, self.first_waves[number][veu])
        start = piece.start
        if (
            mine
            and mine[-1].operator == number
            and mine[-1].stop == start
            and mine[-1].wave == wave
        ):
            start = mine.pop().start
        mine.append(Placed(number, piece.candidate, start, piece.stop, wave))
        self.waves[number][veu] = max(self.waves[number][veu], wave)

    def _complete(self, operator: int) -> None:
        self.left -= 1
        for after in self.graph.successors[operator]:
            self.missing[after] -= 1
            if not self.missing[after]:
                self._offer(after)


def _own_and_others(values: Sequence[Any], num_veus: int, nothing: Any) -> list[tuple[Any, Any]]:
    """For each vEU its own value, and the largest one of the others."""
    mine = list(values) or [nothing] * num_veus
    largest = max(range(num_veus), key=mine.__getitem__)
    second = max((mine[v] for v in range(num_veus) if v != largest), default=nothing)
    return [(mine[v], second if v == largest else mine[largest]) for v in range(num_veus)]
