"""What rTasks that run at the same time draw together from the caches and memories they share.

Sums are kept as rTasks start and end, so that nobody looks at all vEUs to know them. They are of
whole numbers, which add up to the same in any order.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from heapq import heappop, heappush

from tvm_rammer.machine.topology import Topology

#: Parts of a byte per second that are counted: far less than any rate is known to.
_PARTS = 1 << 20
#: Of a plan that somebody wrote by hand a rate may be beyond all numbers.
_MOST_PARTS = sys.float_info.max


class Contention:
    """Bytes per second of the rTasks that run at a time, which never goes back.

    Parameters
    ----------
    num_veus : int
    topology : Topology, optional
        Says whose last-level cache and whose memory a vEU shares; all share one without it.
    """

    def __init__(self, num_veus: int, topology: Topology | None) -> None:
        complexes, sockets = (topology.complexes, topology.sockets) if topology else ((0,), (0,))
        self._complexes = [complexes[veu % len(complexes)] for veu in range(num_veus)]
        self._sockets = [sockets[veu % len(sockets)] for veu in range(num_veus)]
        #: By when they end: the vEU, and parts of bytes from its cache and its memory.
        self._running: list[tuple[float, int, int, int]] = []
        self._from_caches: dict[int, int] = defaultdict(int)
        self._from_memories: dict[int, int] = defaultdict(int)

    def beside(self, veu: int, start: float) -> tuple[float, float]:
        """What others draw from the last-level cache and the memory of a vEU that is free."""
        while self._running and self._running[0][0] <= start:
            _, other, cache, memory = heappop(self._running)
            self._count(other, -cache, -memory)
        cache = self._from_caches[self._complexes[veu]]
        return cache / _PARTS, self._from_memories[self._sockets[veu]] / _PARTS

    def add(self, veu: int, stop: float, cache: float, memory: float) -> None:
        """An rTask that draws so much until it ends."""
        parts = (_in_parts(cache), _in_parts(memory))
        heappush(self._running, (stop, veu, *parts))
        self._count(veu, *parts)

    def _count(self, veu: int, cache: int, memory: int) -> None:
        if cache:
            self._from_caches[self._complexes[veu]] += cache
        if memory:
            self._from_memories[self._sockets[veu]] += memory


def _in_parts(rate: float) -> int:
    return int(min(rate * _PARTS, _MOST_PARTS)) if rate else 0
