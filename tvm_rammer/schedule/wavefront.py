"""Rammer's wavefronts: co-schedule the operators of one level of the graph, level after level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_rammer.rprogram.graph import Operator, OperatorGraph
from tvm_rammer.rprogram.program import RKernel
from tvm_rammer.rprogram.rows import root_of
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.fill_veus import Share, fill_veus
from tvm_rammer.schedule.interplay import area, fastest_time
from tvm_rammer.schedule.placement import Placed, Placement
from tvm_rammer.schedule.ranks import choose_by_level, upward_ranks, waves_of
from tvm_rammer.schedule.trials import Trials

#: Loads are sums of floats: this much above the fair share is still the fair share.
_ROUNDING = 1 + 1e-9

#: How much longer a program may take in which fewer results are alive at once.
_WORTH_MEMORY = 1.002


def wavefront(
    graph: OperatorGraph,
    num_veus: int,
    costs: CostModel,
    barrier: bool = False,
    trials: Trials | None = None,
) -> Placement:
    """Place one level of the graph after the other (Rammer, OSDI 2020, section 3.3).

    The levels are Kahn's, their slack balanced by :func:`balanced_levels` unless a simulation says
    that the program then takes longer (by more than a smaller arena is worth). Within a wave,
    :func:`interplay` chooses the rKernels, longest processing time first chooses the vEUs, and each
    vEU runs what it got critical path first.

    Parameters
    ----------
    graph : OperatorGraph
    num_veus : int
    costs : CostModel
    barrier : bool
        Let all vEUs wait for each other between two waves, as the paper does. By default a task
        waits only for the results that it reads, so that neighbouring waves overlap.
    trials : Trials, optional
        Of the graph, where others simulate its plans too.
    """
    balanced = balanced_levels(graph, num_veus, costs)
    placement = _by_levels(graph, balanced, num_veus, costs, barrier)
    if balanced == list(graph.levels):
        return placement
    trials = trials or Trials(graph, num_veus, costs)
    seconds = trials.seconds(placement)
    if seconds <= trials.least * _WORTH_MEMORY:
        return placement
    plain = _by_levels(graph, graph.levels, num_veus, costs, barrier)
    return placement if seconds <= trials.seconds(plain) * _WORTH_MEMORY else plain


def _by_levels(
    graph: OperatorGraph, levels: Sequence[int], num_veus: int, costs: CostModel, barrier: bool
) -> Placement:
    chosen = choose_by_level(graph, levels, num_veus, costs)
    kernels = [op.candidates[c] for op, c in zip(graph.operators, chosen, strict=True)]
    urgency = upward_ranks(graph, kernels, num_veus, costs)
    homes = _Homes(graph)
    veus: list[list[Placed]] = [[] for _ in range(num_veus)]
    for level, wave in enumerate(waves_of(levels)):
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


class _Homes:
    """Which vEU has touched each buffer last: its bytes may still be in that vEU's cache.

    A buffer and its parts are one.
    """

    def __init__(self, graph: OperatorGraph) -> None:
        self.operators = graph.operators
        self.nbytes = [buffer.nbytes for buffer in graph.buffers]
        self.roots = [root_of(graph.buffers, number) for number in range(len(graph.buffers))]
        self.home: dict[int, int] = {}

    def of(self, operator: Operator) -> int | None:
        """The vEU that is home to most bytes that the operator reads."""
        votes: Counter[int] = Counter()
        for buffer in operator.arguments:
            if self.roots[buffer] in self.home:
                votes[self.home[self.roots[buffer]]] += self.nbytes[buffer]
        return max(votes, key=lambda veu: (votes[veu], -veu), default=None)

    def move(self, operator: Operator, veu: int) -> None:
        for buffer in operator.arguments:
            self.home[self.roots[buffer]] = veu


def _place(
    wave: Sequence[int],
    kernels: Sequence[RKernel],
    homes: _Homes,
    num_veus: int,
    costs: CostModel,
) -> list[_Piece]:
    """Longest processing time first. No vEU gets more than its fair share if splitting can help it.

    An operator stays whole if it then ends within the fair share, at home if it can be; otherwise
    it fills up one vEU after the other (:func:`~.fill_veus.fill_veus`). An excess that is worth
    less than the wait for a range on another vEU is no reason to split.
    """
    loads = [0.0] * num_veus
    fair = _ROUNDING * max(
        sum(area(kernels[number]) for number in wave) / num_veus,
        max(_longest_range(kernels[number], num_veus, costs) for number in wave),
    )
    pieces = []
    for number in sorted(wave, key=lambda n: (-area(kernels[n]), n)):
        operator, kernel = homes.operators[number], kernels[number]
        home = homes.of(operator)
        if home is not None and loads[home] + area(kernel) <= fair + costs.point_to_point:
            shares = [Share(home, kernel.num_tiles)]
        else:
            tiles, wait = kernel.num_tiles, costs.point_to_point
            shares = fill_veus(loads, tiles, kernel.tile_time, fair, wait)
        start = 0
        for veu, tiles in shares:
            pieces.append(_Piece(veu, number, start, start + tiles))
            loads[veu] += costs.row + tiles * kernel.tile_time
            start += tiles
        homes.move(operator, max(shares, key=lambda share: share[1])[0])
    return pieces


def _longest_range(kernel: RKernel, num_veus: int, costs: CostModel) -> float:
    """Seconds of computing on one vEU, if the operator has as many vEUs as pay."""
    return -(-kernel.num_tiles // costs.best_width(kernel, num_veus)) * kernel.tile_time


def balanced_levels(graph: OperatorGraph, num_veus: int, costs: CostModel) -> list[int]:
    """Let operators with slack leave over-full waves for later ones. O(E).

    Plain levels (Kahn's, ASAP) crowd the first waves: the input products of all time steps of a
    recurrent network are ready at once, and their results occupy the arena until they are needed.
    A wave is over-full if its work keeps all vEUs busy for longer than its longest operator takes.
    What leaves such a wave shortens it by as much as it lengthens another. An operator may go to
    the level before its first consumer (ALAP, given where the consumers went, which are visited
    first so that whole chains move), and does if that wave is emptier, or if its results then
    occupy less memory.

    Returns
    -------
    list of int
        For each operator a level between those of its predecessors and its successors.
    """
    levels = list(graph.levels)
    kernels = [op.candidates[0] for op in graph.operators]
    areas = list(map(area, kernels))
    loads, needed = _waves(levels, areas, [fastest_time(k, num_veus, costs) for k in kernels])
    for number in reversed(range(len(levels))):
        soonest, work = levels[number], areas[number]
        latest = min((levels[after] for after in graph.successors[number]), default=len(loads)) - 1
        rest = loads[soonest] - work
        if latest == soonest or rest < num_veus * needed[soonest]:
            continue
        if loads[latest] <= rest or _holds_more_than_it_reads(graph, graph.operators[number]):
            levels[number] = latest
            loads[soonest] = rest
            loads[latest] += work
    return levels


def _waves(
    levels: Sequence[int], areas: Sequence[float], times: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Work and longest operator of each level."""
    loads = [0.0] * (1 + max(levels, default=-1))
    longest = list(loads)
    for level, work, time in zip(levels, areas, times, strict=True):
        loads[level] += work
        longest[level] = max(longest[level], time)
    return loads, longest


def _holds_more_than_it_reads(graph: OperatorGraph, operator: Operator) -> bool:
    held = 0
    for number, mode in zip(operator.arguments, operator.candidates[0].modes, strict=True):
        buffer = graph.buffers[number]
        if buffer.space in ("arena", "part"):
            held += buffer.nbytes if mode == "write" else -buffer.nbytes
    return held > 0
