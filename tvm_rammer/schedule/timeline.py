"""A timeline: which vEU ran which rTask from when to when, simulated or measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Span(NamedTuple):
    """One rTask in time: task ``position`` of vEU ``veu``, from ``start`` to ``stop`` (seconds)."""

    veu: int
    position: int
    operator: int
    start: float
    stop: float

    @property
    def duration(self) -> float:
        return self.stop - self.start


@dataclass(frozen=True)
class Timeline:
    """The spans of one run.

    Attributes
    ----------
    spans : tuple of Span
        In any order; those of one vEU do not overlap.
    source : str
        Where the times come from, e.g. ``"simulated"`` or ``"measured"``.
    num_veus : int
        vEUs of the program; those without a span count as idle.
    """

    spans: tuple[Span, ...]
    source: str
    num_veus: int = 0

    @cached_property
    def makespan(self) -> float:
        """Seconds from time 0 (the launch) to the end of the last rTask."""
        return max((span.stop for span in self.spans), default=0.0)

    @property
    def busy(self) -> float:
        """Seconds of computing, summed over the vEUs."""
        return sum(span.duration for span in self.spans)

    @property
    def utilisation(self) -> float:
        """Share of the vEUs' time up to the makespan that was spent computing, 0 to 1."""
        veus = max(self.num_veus, 1 + max((span.veu for span in self.spans), default=-1))
        available = veus * self.makespan
        return self.busy / available if available else 0.0
