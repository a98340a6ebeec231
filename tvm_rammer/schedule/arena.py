"""The bytes of an arena while its buffers take their places, one after the other.

A line of memory that another core wrote last has to be fetched from its cache before one can write
to it, which takes as long as reading it there. Where two vEUs share the work of every operator,
half of each result is theirs; buffers of different sizes at one place would have them write over
what the other one wrote. So a buffer is moved within the bytes that are free, until its vEUs write
what they wrote before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvm_rammer.rprogram.program import ALIGNMENT
from tvm_rammer.rprogram.rows import Ints
from tvm_rammer.schedule.owners import PIECES, Floats

Counts = npt.NDArray[np.int32]

#: Places that are compared for a buffer.
_MOST_PLACES = 64


class Arena:
    """Adjacent segments from 0 upwards, each with the last access to it and its owners.

    The last access of a segment's newest buffer stands for those of its older buffers too: they all
    happen before the newest one was written.

    Parameters
    ----------
    num_veus : int
    most : int
        Bytes up to which the arena may grow where that saves transfers.
    """

    def __init__(self, num_veus: int, most: int) -> None:
        self.most = most
        self.nbytes = 0
        self._starts = np.empty(0, np.int64)
        self._last = np.empty((0, num_veus), np.int32)
        self._owners = np.empty((0, num_veus))

    def take(self, nbytes: int, complete: Counts, last: Counts, owners: Floats) -> int:
        """Place a buffer and return its offset.

        Parameters
        ----------
        nbytes : int
            Its size.
        complete : ndarray
            Tasks of each vEU that are complete before the buffer is written.
        last : ndarray
            Tasks of each vEU that are complete when nothing touches it any more.
        owners : ndarray
            ``[piece, vEU]`` as in :func:`~.owners.owners_of`.
        """
        if nbytes == 0:
            return 0
        edges = np.linspace(0, nbytes, PIECES + 1).astype(np.int64)
        offsets, room = self._places(nbytes, complete, edges[_borders(owners)])
        growth = np.maximum(0, offsets + nbytes - self.nbytes)
        beyond = np.maximum(0, offsets + nbytes - max(self.most, self.nbytes))
        foreign = self._foreign(offsets, edges, owners)
        # Of equal ones the tightest run of free bytes, and there the first place.
        best = np.lexsort((offsets, room, np.rint(foreign + growth), beyond))[0]
        offset = int(offsets[best])
        self._put(offset, edges, last, owners)
        return offset

    def _places(self, nbytes: int, complete: Counts, cuts: Ints) -> tuple[Ints, Ints]:
        """Offsets that a buffer may have, and how long the run of free bytes is around each.

        The ends of runs, and where one of its borders (``cuts``) meets one of the arena's.
        """
        free = (self._last <= complete).all(axis=1)
        edges = np.flatnonzero(np.diff(free, prepend=False, append=False))
        bounds = np.append(self._starts, self.nbytes)
        lows, highs = bounds[edges[::2]], bounds[edges[1::2]]
        # The last run grows with the arena, however far.
        if not len(highs) or highs[-1] != self.nbytes:
            lows, highs = np.append(lows, self.nbytes), np.append(highs, self.nbytes)
        highs[-1] = max(highs[-1], lows[-1] + nbytes, min(self.most, lows[-1] + 2 * nbytes))
        fitting = highs - lows >= nbytes
        lows, highs = lows[fitting], highs[fitting]
        borders = self._starts[_changes(self._owners)]
        meeting = borders[:, None] - cuts[None, :]
        meeting = np.unique(meeting.ravel() // ALIGNMENT * ALIGNMENT)
        run = np.searchsorted(lows, meeting, side="right") - 1
        inside = (run >= 0) & (meeting + nbytes <= highs[run])
        found = np.concatenate([lows, (highs - nbytes) // ALIGNMENT * ALIGNMENT, meeting[inside]])
        room = np.concatenate([highs - lows, highs - lows, (highs - lows)[run[inside]]])
        tightest = np.argsort(room, kind="stable")[:_MOST_PLACES]
        return found[tightest], room[tightest]

    def _foreign(self, offsets: Ints, edges: Ints, owners: Floats) -> Floats:
        """Bytes of a buffer, at each offset, that vEUs write where another one wrote last."""
        if not len(self._starts):
            return np.zeros(len(offsets))
        points = np.minimum(offsets[:, None] + edges[None, :], self.nbytes)
        lengths = np.diff(np.append(self._starts, self.nbytes))
        total = np.concatenate(
            [np.zeros((1, owners.shape[1])), (lengths[:, None] * self._owners).cumsum(axis=0)]
        )
        segment = np.clip(np.searchsorted(self._starts, points, "right") - 1, 0, None)
        within = (points - self._starts[segment])[..., None]
        before = total[segment] + within * self._owners[segment]
        own = (np.diff(before, axis=1) * owners[None]).sum(axis=(1, 2))
        return np.diff(points, axis=1).sum(axis=1) - own

    def _put(self, offset: int, edges: Ints, last: Counts, owners: Floats) -> None:
        """Replace the segments of a buffer's bytes by those of its pieces."""
        if offset > self.nbytes:
            # Nobody wrote what is left out: whoever does will not take it from others.
            self._starts = np.append(self._starts, self.nbytes)
            self._last = np.append(self._last, np.zeros((1, len(last)), np.int32), axis=0)
            self._owners = np.append(self._owners, np.ones((1, len(last))), axis=0)
        end = offset + int(edges[-1])
        first, after = np.searchsorted(self._starts, (offset, end)).tolist()
        # The rest of a segment that is taken in part keeps what it has.
        cut = end < self.nbytes and (after == len(self._starts) or self._starts[after] != end)
        rest = slice(after - cut, after)
        pieces = _borders(owners)[:-1]
        starts = (offset + edges[:-1][pieces], [end] * int(cut))
        lasts = (np.broadcast_to(last, (len(starts[0]), len(last))), self._last[rest])
        new = (owners[pieces], self._owners[rest])
        self._starts = np.concatenate([self._starts[:first], *starts, self._starts[after:]])
        self._last = np.concatenate([self._last[:first], *lasts, self._last[after:]])
        self._owners = np.concatenate([self._owners[:first], *new, self._owners[after:]])
        self.nbytes = max(self.nbytes, end)


def _changes(owners: Floats) -> npt.NDArray[np.bool_]:
    """Where the owners are others than just before."""
    changed = np.zeros(len(owners), np.bool_)
    changed[1:] = (owners[1:] != owners[:-1]).any(axis=1)
    return changed


def _borders(owners: Floats) -> npt.NDArray[np.bool_]:
    """Which edges of pieces are borders: where owners change, and the ends."""
    return np.concatenate([[True], _changes(owners)[1:], [True]])
