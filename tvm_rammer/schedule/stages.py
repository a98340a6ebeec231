"""What a stage of concurrent groups costs, and how many vEUs each of its groups has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tvm_rammer.rprogram.graph import Operator
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.interplay import worth_weighing
from tvm_rammer.schedule.stage_search import Group, Stage


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
