"""Rammer's wavefronts: co-schedule the operators of one level of the graph, level after level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_rammer.rprogram.graph import Operator, OperatorGraph
from tvm_rammer.rprogram.program import RKernel
from tvm_rammer.schedule.costs import CostModel, Device
from tvm_rammer.schedule.interplay import area, fastest_time, interplay
from tvm_rammer.schedule.placement import Placed, Placement

#: Loads are sums of floats: this much above the fair share is still the fair share.
_ROUNDING = 1 + 1e-9


def wavefront(
    graph: OperatorGraph, vdevice: Device, costs: CostModel, barrier: bool = False
) -> Placement:
    """Place one level of Kahn's algorithm after the other (Rammer, OSDI 2020, section 3.3).

    Within a wave: :func:`interplay` chooses the rKernels, longest processing time first chooses the
    vEUs, and each vEU runs what it got critical path first.

    Parameters
    ----------
    graph : OperatorGraph
    vdevice : Device
    costs : CostModel
    barrier : bool
        Let all vEUs wait for each other between two waves, as the paper does. By default a task
        waits only for the results that it reads, so that neighbouring waves overlap.
    """
    num_veus = vdevice.num_veus
    waves = _waves(graph)
    chosen = [0] * len(graph.operators)
    for wave in waves:
        candidates = [graph.operators[number].candidates for number in wave]
        for number, candidate in zip(wave, interplay(candidates, num_veus, costs), strict=True):
            chosen[number] = candidate
    kernels = [op.candidates[c] for op, c in zip(graph.operators, chosen, strict=True)]
    urgency = _upward_ranks(graph, kernels, num_veus, costs)
    homes = _Homes(graph)
    veus: list[list[Placed]] = [[] for _ in range(num_veus)]
    for level, wave in enumerate(waves):
        pieces = _place(wave, kernels, homes, num_veus, costs)
        for piece in sorted(pieces, key=lambda p: (-urgency[p.operator], p.operator)):
            number = piece.operator
            veus[piece.veu].append(Placed(number, chosen[number], piece.start, piece.stop, level))
    return Placement("wavefront", tuple(map(tuple, veus)), barrier)


@dataclass(frozen=True)
class _Piece:
    veu: int
    operator: int
    start: int
    stop: int


def _waves(graph: OperatorGraph) -> list[list[int]]:
    waves: list[list[int]] = [[] for _ in range(1 + max(graph.levels, default=-1))]
    for number, level in enumerate(graph.levels):
        waves[level].append(number)
    return waves


def _upward_ranks(
    graph: OperatorGraph, kernels: Sequence[RKernel], num_veus: int, costs: CostModel
) -> list[float]:
    """Seconds from the start of each operator to the end of the longest path behind it."""
    ranks = [fastest_time(kernel, num_veus, costs) for kernel in kernels]
    for number in reversed(range(len(ranks))):
        ranks[number] += max((ranks[after] for after in graph.successors[number]), default=0.0)
    return ranks


class _Homes:
    """Which vEU has touched each buffer last: its bytes may still be in that vEU's cache."""

    def __init__(self, graph: OperatorGraph) -> None:
        self.operators = graph.operators
        self.nbytes = [buffer.nbytes for buffer in graph.buffers]
        self.home: dict[int, int] = {}

    def of(self, operator: Operator) -> int | None:
        """The vEU that is home to most bytes that the operator reads."""
        votes: Counter[int] = Counter()
        for buffer in operator.arguments:
            if buffer in self.home:
                votes[self.home[buffer]] += self.nbytes[buffer]
        return max(votes, key=lambda veu: (votes[veu], -veu), default=None)

    def move(self, operator: Operator, veu: int) -> None:
        for buffer in operator.arguments:
            self.home[buffer] = veu


def _place(
    wave: Sequence[int],
    kernels: Sequence[RKernel],
    homes: _Homes,
    num_veus: int,
    costs: CostModel,
) -> list[_Piece]:
    """Longest processing time first. No vEU gets more than its fair share if splitting can help it.

    An operator stays whole if it then ends within the fair share, at home if it can be; otherwise
    it is split into contiguous ranges over as few vEUs as suffice. An excess that is worth less
    than the wait for a range on another vEU is no reason to split.
    """
    loads = [0.0] * num_veus
    fair = max(
        sum(area(kernels[number]) for number in wave) / num_veus,
        max(fastest_time(kernels[number], num_veus, costs) for number in wave),
    )
    limit = fair * _ROUNDING + costs.point_to_point
    pieces = []
    for number in sorted(wave, key=lambda n: (-area(kernels[n]), n)):
        operator, kernel = homes.operators[number], kernels[number]
        shares = _shares(loads, kernel, limit, homes.of(operator))
        start = 0
        for veu, tiles in shares:
            pieces.append(_Piece(veu, number, start, start + tiles))
            loads[veu] += tiles * kernel.tile_time
            start += tiles
        homes.move(operator, max(shares, key=lambda share: share[1])[0])
    return pieces


def _shares(
    loads: Sequence[float], kernel: RKernel, limit: float, home: int | None
) -> list[tuple[int, int]]:
    """How many tiles of an operator go to which vEUs, ascending."""
    work = area(kernel)
    if home is not None and loads[home] + work <= limit:
        return [(home, kernel.num_tiles)]
    idlest = sorted(range(len(loads)), key=lambda veu: loads[veu])
    best, end = [(idlest[0], kernel.num_tiles)], loads[idlest[0]] + work
    for width in range(2, len(loads) + 1):
        if end <= limit:
            break
        shares = _level(loads, sorted(idlest[:width]), kernel)
        this_end = max(loads[veu] + tiles * kernel.tile_time for veu, tiles in shares)
        if this_end < end:
            best, end = shares, this_end
    return best


def _level(loads: Sequence[float], veus: Sequence[int], kernel: RKernel) -> list[tuple[int, int]]:
    """Fill the vEUs up to one level with an operator's tiles, as well as whole tiles can."""
    level = (sum(loads[veu] for veu in veus) + area(kernel)) / len(veus)
    rooms = [max(0.0, level - loads[veu]) for veu in veus]
    tiles_per_second = kernel.num_tiles / sum(rooms)
    shares, filled, given = [], 0.0, 0
    for veu, room in zip(veus, rooms, strict=True):
        filled += room
        tiles = round(filled * tiles_per_second) - given
        if tiles:
            shares.append((veu, tiles))
        given += tiles
    return shares
