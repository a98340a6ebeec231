"""The bytes of an arena while its buffers take their places, one after the other.

A line of memory that another core wrote last has to be fetched from its cache before one can write
to it, which takes as long as reading it there. Where two vEUs share the work of every operator,
half of each result is theirs; buffers of different sizes at one place would have them write over
what the other one wrote. So a buffer is moved within the bytes that are free, until its vEUs write
what they wrote before.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from tvm_rammer.rprogram.program import ALIGNMENT
from tvm_rammer.rprogram.rows import Ints
from tvm_rammer.schedule.owners import PIECES, Floats
from tvm_rammer.schedule.segments import Counts, Segments

#: Places that are compared for a buffer, and runs of free bytes that are looked at before.
_MOST_PLACES = 64
_MOST_FILLED = 4

#: Where pieces start and stop, in pieces.
_EDGES = np.arange(PIECES + 1)


class Arena:
    """Bytes from 0 upwards: those that may be free, and those that are in use.

    What an operator finds complete is at most what any operator so far found complete. A buffer
    whose last access is beyond that is in use for sure, and is not looked at until it is not.

    Parameters
    ----------
    num_veus : int
    most : int
        Bytes up to which the arena may grow where that saves transfers.
    """

    def __init__(self, num_veus: int, most: int) -> None:
        self.most = most
        self.nbytes = 0
        self._idle = Segments.none(num_veus)
        self._complete = np.zeros(num_veus, np.int32)
        #: For each vEU buffers by how many of its tasks have to be complete.
        self._in_use: list[list[tuple[int, int, Segments]]] = [[] for _ in range(num_veus)]

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
        self._release(complete)
        pieces = Segments.of(nbytes * _EDGES // PIECES, last, owners)
        offset = self._choose(pieces, complete)
        self._idle = self._idle.without(offset, offset + nbytes)
        if offset > self.nbytes:
            # Nobody wrote what is left out: whoever does will not take it from others.
            self._idle = self._idle.joined_by(Segments.unwritten(self.nbytes, offset, len(last)))
        self.nbytes = max(self.nbytes, offset + nbytes)
        self._hold(pieces.moved(offset))
        return offset

    def _release(self, complete: Counts) -> None:
        """Look at the buffers again that may be complete by now."""
        changed = (complete > self._complete).nonzero()[0].tolist()
        self._complete = np.maximum(complete, self._complete)
        for veu in changed:
            in_use, count = self._in_use[veu], int(self._complete[veu])
            while in_use and in_use[0][0] <= count:
                self._hold(heappop(in_use)[-1])

    def _hold(self, buffer: Segments) -> None:
        """Keep the segments of a buffer where they belong."""
        last = buffer.last[:, 0]
        beyond = (last > self._complete).nonzero()[0]
        if len(beyond):
            veu = int(beyond[0])
            # No two buffers in use start at one place: segments are never compared.
            heappush(self._in_use[veu], (int(last[veu]), int(buffer.starts[0]), buffer))
            return
        self._idle = self._idle.joined_by(buffer)

    def _choose(self, pieces: Segments, complete: Counts) -> int:
        nbytes = int(pieces.stops[-1])
        idle = self._idle
        lows, highs = idle.runs(np.all(idle.last <= complete[:, None], axis=0))
        # Free bytes that it fills, where its vEUs wrote them all: nothing is better.
        filled = lows[(highs - lows == nbytes) & (highs < self.nbytes)][:_MOST_FILLED]
        if len(filled) and len(own := filled[np.rint(self._foreign(filled, pieces)) == 0]):
            return int(own[0])
        offsets, room = self._places(pieces, lows, highs)
        if len(offsets) == 1:
            return int(offsets[0])
        ends = offsets + nbytes
        growth = np.maximum(0, ends - self.nbytes)
        beyond = np.maximum(0, ends - max(self.most, self.nbytes))
        foreign = self._foreign(offsets, pieces)
        # Of equal ones the tightest run of free bytes, and there the first place.
        best = np.lexsort((offsets, room, np.rint(foreign + growth), beyond))[0]
        return int(offsets[best])

    def _places(self, pieces: Segments, lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
        """Offsets that a buffer may have in runs of free bytes, and how long the run is at each.

        The ends of runs, and where a border between owners of the buffer meets one of the arena's.
        """
        nbytes = int(pieces.stops[-1])
        # The last run grows with the arena, however far.
        if not len(highs) or highs[-1] != self.nbytes:
            lows, highs = (np.concatenate((ends, [self.nbytes])) for ends in (lows, highs))
        highs[-1] = max(highs[-1], lows[-1] + nbytes, min(self.most, lows[-1] + 2 * nbytes))
        room = highs - lows
        fitting = (room >= nbytes).nonzero()[0]
        if len(fitting) > _MOST_PLACES // 2:
            # Their ends alone are as many places as are compared.
            tightest = room[fitting].argsort(kind="stable")[: _MOST_PLACES // 2]
            fitting = fitting[np.sort(tightest)]
        lows, highs, room = lows[fitting], highs[fitting], room[fitting]
        borders = self._idle.borders()
        run = lows.searchsorted(borders, side="right") - 1
        within = (run >= 0) & (borders < highs[run])
        borders, run = borders[within, None], run[within, None]
        meeting = (borders - pieces.edges) & -ALIGNMENT
        inside = (meeting >= lows[run]) & (meeting + nbytes <= highs[run])
        meeting = _distinct(meeting[inside])
        around = room[lows.searchsorted(meeting, side="right") - 1]
        found = np.concatenate((lows, highs - nbytes & -ALIGNMENT, meeting))
        room = np.concatenate((room, room, around))
        tightest = room.argsort(kind="stable")[:_MOST_PLACES]
        return found[tightest], room[tightest]

    def _foreign(self, offsets: Ints, pieces: Segments) -> Floats:
        """Bytes of a buffer, at each offset, that vEUs write where another one wrote last."""
        if not len(self._idle.starts):
            return np.zeros(len(offsets))
        points = np.minimum(offsets[:, None] + pieces.edges, self.nbytes)
        writers = np.flatnonzero(pieces.owners.any(axis=1))
        before = self._idle.written_before(points, writers)
        written = before[..., 1:] - before[..., :-1]
        own = np.einsum("vop,vp->o", written, pieces.owners[writers])
        return points[:, -1] - points[:, 0] - own


def _distinct(places: Ints) -> Ints:
    """Each once, ascending."""
    places.sort()
    repeated = places[1:] == places[:-1]
    return np.concatenate((places[:1], places[1:][~repeated]))
