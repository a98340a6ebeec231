"""Segments of an arena, each with the last access to it and with those who wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_rammer.rprogram.rows import Ints
from tvm_rammer.schedule.owners import Floats

Counts = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments that do not overlap, ascending.

    The last access of a segment's newest buffer stands for those of its older buffers too: they all
    happen before the newest one was written.

    Attributes
    ----------
    starts, stops : ndarray
        Bytes.
    last : ndarray
        ``[vEU, segment]``: tasks of the vEU that are complete when nothing touches it any more.
    owners : ndarray
        ``[vEU, segment]``: the share of its bytes that the vEU wrote.
    """

    starts: Ints
    stops: Ints
    last: Counts
    owners: Floats

    @classmethod
    def none(cls, num_veus: int) -> Segments:
        """No segment."""
        no_bytes = np.empty(0, np.int64)
        return cls(no_bytes, no_bytes, np.empty((num_veus, 0), np.int32), np.empty((num_veus, 0)))

    @classmethod
    def of(cls, edges: Ints, last: Counts, owners: Floats) -> Segments:
        """A buffer: a segment for each run of its pieces that have the same owners.

        Parameters
        ----------
        edges : ndarray
            Where its pieces start and, at the end, where the last one stops.
        last : ndarray
            For each vEU.
        owners : ndarray
            ``[piece, vEU]``.
        """
        first = np.concatenate(([0], 1 + (owners[1:] != owners[:-1]).any(axis=1).nonzero()[0]))
        starts = edges[first]
        stops = np.concatenate((starts[1:], edges[-1:]))
        return cls(starts, stops, last[:, None].repeat(len(first), axis=1), owners[first].T)

    @classmethod
    def unwritten(cls, start: int, stop: int, num_veus: int) -> Segments:
        """Bytes that nobody wrote, and that everybody has therefore."""
        shape = (num_veus, 1)
        return cls(np.array([start]), np.array([stop]), np.zeros(shape, np.int32), np.ones(shape))

    @property
    def edges(self) -> Ints:
        """Of adjacent segments: where each starts and, at the end, where the last one stops."""
        return np.concatenate((self.starts, self.stops[-1:]))

    def moved(self, by: int) -> Segments:
        """All so many bytes further up."""
        return Segments(self.starts + by, self.stops + by, self.last, self.owners)

    def joined_by(self, other: Segments) -> Segments:
        """With others, between which none of these lies."""
        place = int(self.starts.searchsorted(other.starts[0]))
        pairs = zip(self._columns(), other._columns(), strict=True)
        return Segments(*(_splice(mine, place, place, theirs) for mine, theirs in pairs))

    def without(self, start: int, stop: int) -> Segments:
        """What is left when bytes are taken out; a segment that is cut keeps what it has."""
        first = int(self.stops.searchsorted(start, side="right"))
        after = int(self.starts.searchsorted(stop))
        if first == after:
            return self
        below = bool(self.starts[first] < start)
        above = bool(self.stops[after - 1] > stop)
        first, after = first + below, after - above
        starts, stops, last, owners = (_splice(mine, first, after) for mine in self._columns())
        if below:
            stops[first - 1] = start
        if above:
            starts[first] = stop
        return Segments(starts, stops, last, owners)

    def runs(self, chosen: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Where runs of adjacent segments that are ``chosen`` start and stop."""
        joined = chosen[1:] & chosen[:-1] & (self.starts[1:] == self.stops[:-1])
        first, final = chosen.copy(), chosen.copy()
        first[1:] &= ~joined
        final[:-1] &= ~joined
        return self.starts[first], self.stops[final]

    def borders(self) -> Ints:
        """Where segments start whose owners are others than those of the segment before."""
        return self.starts[1:][(self.owners[:, 1:] != self.owners[:, :-1]).any(axis=0)]

    def written_before(self, points: Ints, veus: Ints) -> Floats:
        """``[vEU, *points]``: bytes of segments up to a point that some vEUs wrote, each."""
        owners = self.owners[veus]
        total = np.zeros((len(owners), len(self.starts) + 1))
        np.cumsum((self.stops - self.starts) * owners, axis=1, out=total[:, 1:])
        segment = np.maximum(self.starts.searchsorted(points, side="right") - 1, 0)
        within = points - self.starts[segment]
        return total.take(segment, axis=1) + within * owners.take(segment, axis=1)

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.starts, self.stops, self.last, self.owners


def _splice(
    columns: npt.NDArray[Any], first: int, after: int, *between: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Columns with those from ``first`` to ``after`` replaced by others."""
    return np.concatenate((columns[..., :first], *between, columns[..., after:]), axis=-1)
