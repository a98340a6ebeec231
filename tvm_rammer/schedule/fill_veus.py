"""How vEUs share an operator: filled up one after the other, to one level."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple


class Share(NamedTuple):
    """So many tiles of an operator for one vEU."""

    veu: int
    tiles: int


def fill_veus(
    starts: Sequence[float], tiles: int, tile_time: float, level: float, excess: float = 0.0
) -> list[Share]:
    """Fill vEUs up to a level, the soonest first; what is left goes where it ends soonest.

    McNaughton's rule (*Scheduling with Deadlines and Loss Functions*, Management Science 1959) for
    an operator that may be cut between tiles alone.

    >>> fill_veus([4.0, 0.0, 1.0], 7, 1.0, 4.0)
    [Share(veu=1, tiles=4), Share(veu=2, tiles=3)]

    Parameters
    ----------
    starts : sequence of float
        When each vEU may start (seconds).
    tiles : int
        Of the operator.
    tile_time : float
        Seconds of one of them.
    level : float
        When vEUs should end (seconds).
    excess : float
        How much later the last of them may end, if no other one is then needed (seconds).

    Returns
    -------
    list of Share
        Ascending by vEU.
    """
    given = [0] * len(starts)
    left = tiles
    for veu in sorted(range(len(starts)), key=starts.__getitem__):
        if starts[veu] + left * tile_time <= level + excess:
            given[veu], left = left, 0
            break
        given[veu] = max(0, int((level - starts[veu]) / tile_time))
        left -= given[veu]
    ends = [(starts[veu] + (given[veu] + 1) * tile_time, veu) for veu in range(len(starts))]
    heapify(ends)
    for _ in range(left):
        end, veu = ends[0]
        heapreplace(ends, (end + tile_time, veu))
        given[veu] += 1
    return [Share(veu, count) for veu, count in enumerate(given) if count]
