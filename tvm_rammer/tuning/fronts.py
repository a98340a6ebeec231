"""Which choices of an operator a build takes, of those that ran in turns with the untuned one.

An operator is as fast as its fastest choice when it has the device to itself, and costs as much as
its most efficient one when others share it: a build takes both, and what is between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, inf

#: Choices replace the untuned one if they take at most this part of its time: less is noise.
_BETTER = 0.97
#: The one of both times that does not get better may get so much worse.
_AS_GOOD = 1.01
#: Most choices of an operator that a build takes, and how much longer they may take one core.
MOST_KEPT, LONGEST = 3, 1.5
#: A finer choice has so many times the tiles at least.
_FINER = 1.5
#: Races of a choice until it must be clear whether it gains anything.
_RACES = 3
#: Of the fastest choices with a number of tiles, so many are looked at.
_LOOKED_AT = 4


@dataclass(frozen=True)
class RacedChoice:
    """A choice that ran in turns with the untuned one on one core.

    Attributes
    ----------
    number : int
        Of the choice; those below 1 are untuned.
    tiles : int
        Of the stage that has most.
    alike : str
        Choices for which this is the same can stand in for each other.
    ratio : (float, float, float)
        Its time over that of the untuned one: the median, and the limits between which it lies with
        a confidence of 95 %.
    moved : float
        What its data take besides to move between the vEUs of a device, over the same time.
    """

    number: int
    tiles: int
    alike: str
    ratio: tuple[float, float, float]
    moved: float = 0.0

    @property
    def cost(self) -> float:
        """Its time in those of the untuned one, and with tuned ones no doubt that matters."""
        return self.moved + (self.ratio[0] if self.number <= 0 else self.ratio[2])

    def alone(self, num_veus: int) -> float:
        """The same on so many vEUs."""
        return self.cost * ceil(self.tiles / num_veus) / self.tiles


#: What choices of one operator took, by their numbers: in each race that they took part in.
Races = Mapping[int, Sequence[RacedChoice]]


def latest(races: Races) -> list[RacedChoice]:
    """Each choice by its last race."""
    return [each[-1] for each in races.values()]


def proved(races: Races) -> list[RacedChoice]:
    """The untuned ones, and those that were in a second race after the one that chose them.

    The winner of many was lucky in the race that it won; the next one knows nothing of that.
    """
    return [each[-1] for number, each in races.items() if number <= 0 or len(each) > 1]


def is_undecided(races: Sequence[RacedChoice]) -> bool:
    """Whether another race may show what the last one, on a busy machine, did not."""
    middle, _, high = races[-1].ratio
    return middle <= _BETTER < high and len(races) < _RACES


def chosen_front(
    raced: Sequence[RacedChoice], num_veus: int, fast_only: bool = False
) -> list[RacedChoice]:
    """The choices that a build takes, the most efficient first, each other one with more tiles.

    Parameters
    ----------
    raced : sequence of RacedChoice
        Of one operator, the untuned ones among them.
    num_veus : int
        Of the device.
    fast_only : bool
        Only the one that is fastest if it has the device to itself.

    Returns
    -------
    list of RacedChoice
        They can stand in for each other. Nothing where no choice is better than the untuned ones.
    """
    untuned = [each for each in raced if each.number <= 0]
    tuned = sorted((each for each in raced if each.number > 0), key=lambda each: each.alike)
    if not untuned:
        return []
    best, least = [], _BETTER
    for _, group in groupby(tuned, key=lambda each: each.alike):
        front = pareto_front(list(group))
        if fast_only:
            front = [min(front, key=lambda each: (each.alone(num_veus), each.cost))]
        gain = _relative_time(front, untuned, num_veus)
        if gain <= least:
            best, least = front, gain
    return best


def fastest_by_tiles(seconds: Mapping[int, float], tiles: Callable[[int], int]) -> list[int]:
    """The fastest few choices for each number of tiles, the fastest of all first.

    Parameters
    ----------
    seconds : mapping of int to float
        What all tiles of a choice take one core, by its number; infinite where it failed.
    tiles : callable
        The tiles of a choice.
    """
    found: list[int] = []
    left: dict[int, int] = {}
    for number in sorted(seconds, key=lambda number: (seconds[number], number)):
        if seconds[number] < inf:
            count = tiles(number)
            left[count] = left.get(count, _LOOKED_AT) - 1
            found += [number] if left[count] >= 0 else []
    return found


def pareto_front(choices: Sequence[RacedChoice]) -> list[RacedChoice]:
    """The cheapest choice, and those with more tiles than all cheaper ones, while they pay."""
    kept: list[RacedChoice] = []
    for each in sorted(choices, key=lambda each: each.cost):
        if len(kept) == MOST_KEPT or each.cost > LONGEST * (kept or [each])[0].cost:
            break
        if not kept or each.tiles >= _FINER * kept[-1].tiles:
            kept.append(each)
    return kept


def _relative_time(
    front: Sequence[RacedChoice], untuned: Sequence[RacedChoice], num_veus: int
) -> float:
    """The better one of both times over that without tuning; infinite if the other got worse."""
    ratios = list(_ratios(front, untuned, num_veus))
    return min(ratios) if max(ratios) <= _AS_GOOD else float("inf")


def _ratios(
    front: Sequence[RacedChoice], untuned: Sequence[RacedChoice], num_veus: int
) -> Iterator[float]:
    for veus in (1, num_veus):
        now, before = (min(each.alone(veus) for each in some) for some in (front, untuned))
        yield now / before
