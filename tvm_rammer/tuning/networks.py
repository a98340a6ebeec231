"""Whether what operators gain one by one is gained by their networks too: what is kept of that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class TakenChoices:
    """The choices of a workload that a build takes by the races of its operator alone.

    Attributes
    ----------
    workload : int
    numbers : tuple of int
        Of the choices.
    kept : bool
        Whether a network takes them.
    """

    workload: int
    numbers: tuple[int, ...]
    kept: bool


@dataclass(frozen=True)
class NetworkRace:
    """A network by records that ran in turns with the one without.

    Attributes
    ----------
    workloads : tuple of int
        All that the network has: they name it.
    taken : tuple of TakenChoices
    ratio : (float, float, float)
        Its time with what is kept over that without records: the median, and the limits between
        which it lies with a confidence of 95 %; of the last that did not pay where nothing is kept.
    seconds : float
        The median of a run without records.
    """

    workloads: tuple[int, ...]
    taken: tuple[TakenChoices, ...]
    ratio: tuple[float, float, float]
    seconds: float

    def line(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self)) + "\n"

    def is_of(self, chosen: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
        """Whether it is about these choices of workloads."""
        return [(each.workload, each.numbers) for each in self.taken] == list(chosen)

    def words(self) -> str:
        """What came out of it, for people."""
        kept = sum(each.kept for each in self.taken)
        middle, low, high = self.ratio
        took = f"{middle:.3f}x ({low:.2f} to {high:.2f}) of its time without records"
        if not kept:
            return f"the network keeps its untuned operators: tuned ones took {took}"
        others = len(self.taken) - kept
        rest = f", and {others} that did not pay stay untuned" if others else ""
        return f"the network with {kept} tuned operators takes {took}{rest}"


def left_out(races: Sequence[NetworkRace]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Workloads and choices that do not pay in one of the networks, by its last race."""
    last = {race.workloads: race for race in races}
    for race in last.values():
        yield from ((each.workload, each.numbers) for each in race.taken if not each.kept)
