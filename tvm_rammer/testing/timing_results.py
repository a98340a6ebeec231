"""What a fair timing found: per contender its runs, and ratios with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from tvm_rammer.errors import InputError
from tvm_rammer.testing.reference import relative_error

Status = Literal["ok", "failed", "disagrees", "missing"]
#: Of the rounds, for the interval of a ratio.
_RESAMPLES = 2000


@dataclass(frozen=True)
class Outcome:
    """How one contender did.

    Attributes
    ----------
    name : str
    status : {"ok", "failed", "disagrees", "missing"}
        ``disagrees``: its outputs are not the others', so it was not timed. ``missing``: what it
        needs is not installed, or it has nothing for an operator of the model.
    note : str
        Why the status is not ``ok``.
    blocks_ns : tuple of tuple of int
        Nanoseconds of every run, by blocks, in the order of the rounds.
    set_up_s, set_up_peak_mb : float
        Seconds to load or compile, and the peak of the process's memory until then.
    peak_mb : float
        Peak of memory afterwards, while it runs.
    error : float
        Relative distance of its outputs from the reference's.
    affinity : tuple of int
        The CPUs that its threads may use.
    disturbance : float
        How many of those CPUs other processes kept busy, on average, during its blocks.
    facts : mapping of str to anything
        What the contender says about itself, as plain data.
    """

    name: str
    status: Status
    note: str = ""
    blocks_ns: tuple[tuple[int, ...], ...] = ()
    set_up_s: float = 0.0
    set_up_peak_mb: float = 0.0
    peak_mb: float = 0.0
    error: float = 0.0
    affinity: tuple[int, ...] = ()
    disturbance: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def quartiles_ms(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of all runs in milliseconds."""
        runs = [ns for block in self.blocks_ns for ns in block]
        low, middle, high = np.percentile(runs, (25, 50, 75)) / 1e6
        return float(low), float(middle), float(high)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Outcome:
        """The outcome that :meth:`to_json` wrote."""
        blocks = tuple(tuple(block) for block in data["blocks_ns"])
        return Outcome(**{**data, "blocks_ns": blocks, "affinity": tuple(data["affinity"])})


@dataclass(frozen=True)
class Ratio:
    """Time of one contender over another's: the estimate and its 95 % interval."""

    value: float
    low: float
    high: float


def paired_ratio(outcome: Outcome, baseline: Outcome) -> Ratio:
    """Median ratio of the blocks that both ran in the same round, with a bootstrap interval.

    Neighbouring blocks meet the same machine (clock, other load), so their ratio varies much less
    than either time; whole rounds are resampled, because runs of one block are not independent.
    """
    ratios = np.array(
        [
            np.median(mine) / np.median(theirs)
            for mine, theirs in zip(outcome.blocks_ns, baseline.blocks_ns, strict=False)
        ]
    )
    if not ratios.size:
        raise InputError(f"{outcome.name} and {baseline.name} have no round in common to compare")
    rng = np.random.default_rng(0)
    samples = np.median(rng.choice(ratios, (_RESAMPLES, ratios.size)), axis=1)
    low, high = np.percentile(samples, (2.5, 97.5))
    return Ratio(float(np.median(ratios)), float(low), float(high))


def distance(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """The largest relative error over all outputs; infinite where number or shapes differ."""
    if [a.shape for a in got] != [a.shape for a in want]:
        return float("inf")
    return max((relative_error(a, b) for a, b in zip(got, want, strict=True)), default=0.0)


def reference_of(outputs: Sequence[Sequence[np.ndarray]], tolerance: float) -> int:
    """Whose outputs the most others agree with; the first among equals."""
    agreeing = [sum(distance(other, mine) <= tolerance for other in outputs) for mine in outputs]
    return agreeing.index(max(agreeing))
