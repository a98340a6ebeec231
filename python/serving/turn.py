"""What a stretch of serving gives: latencies, counts, memory, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log
from typing import Any

#: Latencies in one bucket differ by so much: a list of all of them would grow by the hour.
_STEP = log(1.01)
#: Messages that are kept: a fault may happen in every run.
_MOST_WRONG = 10


@dataclass
class Latencies:
    """Seconds of runs, to the next 1 %, in memory that does not grow with their number."""

    buckets: Counter[int] = field(default_factory=Counter)
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[round(log(seconds) / _STEP)] += 1
        self.longest = max(self.longest, seconds)

    def include(self, other: Latencies) -> None:
        self.buckets.update(other.buckets)
        self.longest = max(self.longest, other.longest)

    @property
    def count(self) -> int:
        return self.buckets.total()

    def percentile(self, percent: float) -> float:
        """Seconds that so many of a hundred runs did not exceed; 0 if there was none."""
        left = self.count * percent / 100
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return min(exp(bucket * _STEP), self.longest)
        return 0.0

    def to_json(self) -> dict[str, Any]:
        return {"buckets": list(self.buckets.items()), "longest": self.longest}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Latencies:
        return cls(Counter(dict(content["buckets"])), content["longest"])


@dataclass
class Turn:
    """What one process did in a turn, or several of them together.

    Attributes
    ----------
    latencies : dict of str to Latencies
        By model.
    seconds : float
        How long runs were begun.
    resident : list of int
        Bytes of memory in the course of the turn, all of its processes together.
    counts : Counter
        Of what happened beside runs.
    wrong : list of str
        What must not happen; the first messages, ``counts["wrong"]`` has their number.
    """

    latencies: dict[str, Latencies] = field(default_factory=dict)
    seconds: float = 0.0
    resident: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def runs(self) -> int:
        return sum(each.count for each in self.latencies.values())

    def add_wrong(self, message: str) -> None:
        self.counts["wrong"] += 1
        if len(self.wrong) < _MOST_WRONG:
            self.wrong.append(message)

    def include(self, other: Turn) -> None:
        """Add the runs of another; memory and seconds are for the caller to see to."""
        for name, latencies in other.latencies.items():
            self.latencies.setdefault(name, Latencies()).include(latencies)
        self.counts.update(other.counts)
        self.wrong += other.wrong[: _MOST_WRONG - len(self.wrong)]

    def to_json(self) -> dict[str, Any]:
        latencies = {name: each.to_json() for name, each in self.latencies.items()}
        return {**vars(self), "latencies": latencies, "counts": dict(self.counts)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Turn:
        latencies = {name: Latencies.from_json(each) for name, each in content["latencies"].items()}
        counts = Counter(content["counts"])
        return cls(**{**content, "latencies": latencies, "counts": counts})


def together(turns: Iterable[Turn]) -> Turn:
    """What processes did side by side, as if they were one."""
    result = Turn()
    turns = list(turns)
    for turn in turns:
        result.include(turn)
    result.seconds = max(turn.seconds for turn in turns)
    result.resident = [sum(each) for each in zip(*(turn.resident for turn in turns), strict=False)]
    return result


def in_a_row(turns: Iterable[Turn]) -> Turn:
    """What was done in one turn after the other."""
    result = Turn()
    for turn in turns:
        result.include(turn)
        result.seconds += turn.seconds
        result.resident += turn.resident
    return result
