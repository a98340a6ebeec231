"""IOS: stages of concurrent groups, found by dynamic programming over endings of each block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from tvm_rammer.rprogram.graph import Operator, OperatorGraph
from tvm_rammer.rprogram.rows import root_of
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.interplay import worth_weighing
from tvm_rammer.schedule.placement import Placed, Placement, split
from tvm_rammer.schedule.wavefront import wavefront

#: A block that has more operators is cut again.
_LARGEST_BLOCK = 40

#: Endings that are looked at for one block, and for a whole graph: about 10 us each. Ten times as
#: many found the same plans of twelve networks of the zoo, for 2 and for 16 vEUs.
_BLOCK_BUDGET = 2_000
_BUDGET = 20_000

#: More operators take too long: the search looks at each block for seconds.
_MOST_OPERATORS = 2_000


def ios(graph: OperatorGraph, num_veus: int, costs: CostModel, r: int = 3, s: int = 8) -> Placement:
    """Inter-operator scheduling by dynamic programming (IOS, MLSys 2021).

    The graph is cut where a single tensor is live. For each block the search finds the sequence of
    stages whose estimated times add up to the least; equal blocks are searched once. A group has
    vEUs of its own, or if there are more groups than vEUs, shares one with others. The original
    measures each stage on the device and merges convolutions of a stage; here the cost model
    estimates it and nothing is merged. The stages order the operators; at run time an rTask waits
    only for the results that it reads.

    A block with too many endings is searched again with groups of one operator (2.5 to 4 % worse in
    the paper, at a sixth of the time); if they are still too many, it is placed by
    :func:`wavefront`.

    Parameters
    ----------
    graph : OperatorGraph
    num_veus : int
    costs : CostModel
    r, s : int
        Most operators of a group, most groups of a stage.
    """
    return _Ios(graph, num_veus, costs, r, s).run()


def limit(graph: OperatorGraph, num_veus: int) -> str:
    """Why :func:`ios` had better not search a graph, as in :class:`~.policy.Policy`."""
    most, count = _MOST_OPERATORS, len(graph.operators)
    if count <= most:
        return ""
    return f"its search is for graphs of up to {most:,} operators, this one has {count:,}"


class _Ios:
    def __init__(
        self, graph: OperatorGraph, num_veus: int, costs: CostModel, r: int, s: int
    ) -> None:
        self.graph = graph
        self.costs = costs
        self.limits = dict.fromkeys([(r, s), (1, s)])
        self.budget = _BUDGET
        self.known: dict[object, list[Stage] | None] = {}
        self.veus: list[list[Placed]] = [[] for _ in range(num_veus)]
        self.homes: dict[int, frozenset[int]] = {}
        self.wave = 0

    def run(self) -> Placement:
        for block in cut_into_blocks(self.graph, _LARGEST_BLOCK):
            operators = self.graph.operators[block.start : block.stop]
            prices = StageCosts(operators, len(self.veus), self.costs)
            stages = self._stages(block, prices)
            if stages is None:
                self._place_wavefronts(block)
            else:
                for stage in stages:
                    self._place(block, stage, prices)
        return Placement("ios", tuple(map(tuple, self.veus)))

    def _stages(self, block: range, prices: StageCosts) -> list[Stage] | None:
        """The best stages of a block; None if the search would take too long."""
        masks = tuple(
            sum(
                1 << after - block.start
                for after in self.graph.successors[number]
                if after in block
            )
            for number in block
        )
        key = (tuple(op.candidates for op in prices.operators), masks)
        if key not in self.known:
            self.known[key] = self._search(prices, masks)
        return self.known[key]

    def _search(self, prices: StageCosts, masks: Sequence[int]) -> list[Stage] | None:
        for r, s in self.limits:
            allowed = min(_BLOCK_BUDGET, self.budget)
            search = StageSearch(masks, prices.seconds, r, s, allowed)
            try:
                return search.run()
            except TooManyEndings:
                continue
            finally:
                self.budget -= min(search.looked_at, allowed)
        return None

    def _place(self, block: range, stage: Stage, prices: StageCosts) -> None:
        widths = prices.allot(stage).widths
        times = [prices.group_time(g, width) for g, width in zip(stage, widths, strict=True)]
        loads = [0.0] * len(self.veus)
        for number in sorted(range(len(stage)), key=lambda n: (-widths[n], -times[n], stage[n])):
            members = [m for m in block if stage[number] >> m - block.start & 1]
            near = self._homes_of(members)
            order = sorted(range(len(loads)), key=lambda v: (loads[v], v not in near, v))
            chosen = sorted(order[: widths[number]])
            for veu in chosen:
                loads[veu] += times[number]
            for member in members:
                self._put(member, prices.choice(member - block.start, len(chosen))[1], chosen)
        self.wave += 1

    def _homes_of(self, members: Sequence[int]) -> set[int]:
        """The vEUs that ran what a group reads."""
        before = {p for member in members for p in self.graph.predecessors[member]}
        return {veu for p in before for veu in self.homes.get(p, ())}

    def _put(self, number: int, candidate: int, veus: Sequence[int]) -> None:
        tiles = self.graph.operators[number].candidates[candidate].num_tiles
        for veu, (start, stop) in zip(veus, split(tiles, len(veus)), strict=True):
            self.veus[veu].append(Placed(number, candidate, start, stop, self.wave))
        self.homes[number] = frozenset(veus)

    def _place_wavefronts(self, block: range) -> None:
        part = OperatorGraph(
            self.graph.name, self.graph.buffers, self.graph.operators[block.start : block.stop]
        )
        placement = wavefront(part, len(self.veus), self.costs)
        last = self.wave
        for mine, placed in zip(self.veus, placement.veus, strict=True):
            for piece in placed:
                wave = self.wave + piece.wave
                mine.append(replace(piece, operator=block.start + piece.operator, wave=wave))
                last = max(last, wave + 1)
        self.wave = last


def cut_into_blocks(graph: OperatorGraph, largest: int) -> list[range]:
    """Cut the operators' order where one intermediate result is live.

    A block that is still longer than ``largest`` is cut again where the fewest are live (between
    the cells of a NASNet there are two), nearest to its middle.

    Returns
    -------
    list of range
        Operators, in order.
    """
    live = live_results(graph)
    count = len(graph.operators)
    cuts = [cut for cut in range(1, count) if live[cut] <= 1]
    parts: list[range] = []
    for start, stop in pairwise([0, *cuts, count]):
        _halve(range(start, stop), live, largest, parts)
    return parts


def live_results(graph: OperatorGraph) -> list[int]:
    """For each operator how many results of earlier ones it or later ones read."""
    change = [0] * (len(graph.operators) + 1)
    last: dict[tuple[int, int], int] = {}
    for number, operator in enumerate(graph.operators):
        for buffer in operator.arguments:
            for writer in graph.writers[buffer]:
                if writer < number:
                    last[writer, root_of(graph.buffers, buffer)] = number
    for (writer, _), number in last.items():
        change[writer + 1] += 1
        change[number + 1] -= 1
    return list(accumulate(change))


def _halve(block: range, live: list[int], largest: int, parts: list[range]) -> None:
    if len(block) <= largest:
        if block:
            parts.append(block)
        return
    middle = (block.start + block.stop) / 2
    # Not at its ends, so that a block does not lose one operator at a time.
    margin = min(len(block) // 4, largest // 2) or 1
    inside = range(block.start + margin, block.stop - margin + 1)
    cut = min(inside, key=lambda c: (live[c], abs(c - middle), c))
    _halve(range(block.start, cut), live, largest, parts)
    _halve(range(cut, block.stop), live, largest, parts)


class Allotment(NamedTuple):
    """Seconds that a stage takes, with so many vEUs for each of its groups."""

    seconds: float
    widths: tuple[int, ...]


class StageCosts:
    """Estimates for the stages of one block; what is asked twice is computed once.

    Parameters
    ----------
    operators : sequence of Operator
        Of the block: bit ``n`` of a group stands for ``operators[n]``.
    num_veus : int
    costs : CostModel
    """

    def __init__(self, operators: Sequence[Operator], num_veus: int, costs: CostModel) -> None:
        self.operators = operators
        self.num_veus = num_veus
        self.costs = costs
        self._choices: list[dict[int, tuple[float, int]]] = [{} for _ in operators]
        self._group_times: dict[tuple[Group, int], float] = {}

    def seconds(self, stage: Stage) -> float:
        """What a stage takes with the best allotment."""
        return self.allot(stage).seconds

    def allot(self, stage: Stage) -> Allotment:
        """One vEU for each group; spare ones for the longest, as long as that makes it shorter.

        If there are more groups than vEUs, the groups share them, the longest first.
        """
        times = [self.group_time(group, 1) for group in stage]
        widths = [1] * len(stage)
        if len(stage) >= self.num_veus:
            loads = [0.0] * self.num_veus
            for time in sorted(times, reverse=True):
                loads[loads.index(min(loads))] += time
            return Allotment(max(loads) + self._end(self.num_veus), tuple(widths))
        spare = self.num_veus - len(stage)
        while spare:
            longest = times.index(max(times))
            width, time = self._wider(stage[longest], widths[longest], spare)
            if time >= times[longest]:
                break
            spare -= width - widths[longest]
            widths[longest], times[longest] = width, time
        return Allotment(max(times) + self._end(sum(widths)), tuple(widths))

    def group_time(self, group: Group, width: int) -> float:
        """Seconds of a group's operators one after the other, each on ``width`` vEUs."""
        key = (group, width)
        if key not in self._group_times:
            members = [n for n in range(group.bit_length()) if group >> n & 1]
            computing = sum(self.choice(number, width)[0] for number in members)
            self._group_times[key] = computing + (len(members) - 1) * self._end(width)
        return self._group_times[key]

    def choice(self, operator: int, width: int) -> tuple[float, int]:
        """Seconds of computing on ``width`` vEUs, and the candidate that takes them."""
        known = self._choices[operator]
        if width not in known:
            candidates = worth_weighing(self.operators[operator].candidates, width)
            known[width] = min(
                (-(-kernel.num_tiles // width) * kernel.tile_time, number)
                for number, kernel in candidates
            )
        return known[width]

    def _wider(self, group: Group, width: int, spare: int) -> tuple[int, float]:
        """The next width that makes a group shorter, if ``spare`` more vEUs allow one."""
        before = time = self.group_time(group, width)
        for wider in range(width + 1, width + spare + 1):
            time = self.group_time(group, wider)
            if time < before:
                return wider, time
        return width, time

    def _end(self, veus: int) -> float:
        """Seconds until all of so many vEUs know that the others are done."""
        return self.costs.barrier if veus > 1 else 0.0


#: Operators of a block as bits; a stage is a set of groups.
Group = int
Stage = tuple[Group, ...]


class TooManyEndings(Exception):
    """The search would take longer than it may."""


class StageSearch:
    """``dp(S) = min over endings T of S of dp(S - T) + cost(T)``, memoised on bitmasks.

    An ending of ``S`` is a set that no operator of the rest needs. It runs as one stage: its
    connected parts are groups that run side by side, each in order. A group grows from its last
    operator backwards and may so have several sources, which the original never forms. (A stage
    keeps to its limits at every step of this growth.)

    Parameters
    ----------
    successors : sequence of int
        For each operator of the block, in topological order, the mask of those that read from it.
    cost : callable
        Seconds of a stage.
    largest, most : int
        IOS's r and s: operators of a group, and groups of a stage.
    budget : int
        How many endings may be looked at.
    """

    def __init__(
        self,
        successors: Sequence[int],
        cost: Callable[[Stage], float],
        largest: int,
        most: int,
        budget: int,
    ) -> None:
        self.successors = successors
        self.ancestors = _ancestors(successors)
        self.cost = cost
        self.largest = largest
        self.most = most
        self.budget = budget
        self.looked_at = 0
        self._costs: dict[int, float] = {}
        self._best: dict[int, tuple[float, int, Stage]] = {0: (0.0, 0, ())}

    def run(self) -> list[Stage]:
        """The best stages in the order in which they run."""
        rest = (1 << len(self.successors)) - 1
        self._solve(rest)
        stages: list[Stage] = []
        while rest:
            _, ending, groups = self._best[rest]
            stages.append(groups)
            rest &= ~ending
        return stages[::-1]

    def _solve(self, rest: int) -> float:
        if rest in self._best:
            return self._best[rest][0]
        best: tuple[float, int, Stage] | None = None
        for ending, groups in self._endings(rest):
            self.looked_at += 1
            if self.looked_at > self.budget:
                raise TooManyEndings
            if ending not in self._costs:
                self._costs[ending] = self.cost(groups)
            seconds = self._costs[ending]
            if best is None or seconds < best[0]:
                seconds += self._solve(rest & ~ending)
                if best is None or seconds < best[0]:
                    best = (seconds, ending, groups)
        assert best is not None, "the last operator of a topological order is an ending"
        self._best[rest] = best
        return best[0]

    def _endings(self, rest: int) -> Iterator[tuple[int, Stage]]:
        """All endings of ``rest`` that the limits allow, each once."""
        # (operators still to decide on, ending so far, its groups)
        stack: list[tuple[int, int, Stage]] = [(rest, 0, ())]
        while stack:
            allowed, ending, groups = stack.pop()
            if not allowed:
                if ending:
                    yield ending, groups
                continue
            operator = allowed.bit_length() - 1
            bit = 1 << operator
            stack.append((allowed & ~bit & ~self.ancestors[operator], ending, groups))
            after = self.successors[operator]
            group = bit | sum(g for g in groups if g & after)
            joined = (*(g for g in groups if not g & after), group)
            if group.bit_count() <= self.largest and len(joined) <= self.most:
                stack.append((allowed & ~bit, ending | bit, joined))


def _ancestors(successors: Sequence[int]) -> list[int]:
    """For each operator the mask of those that it needs, directly or not."""
    found = [0] * len(successors)
    for operator, after in enumerate(successors):
        for later in range(operator + 1, len(successors)):
            if after >> later & 1:
                found[later] |= found[operator] | 1 << operator
    return found
