"""The weights in caches, while a program runs; the one not read for longest goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tvm_rammer.rprogram.program import CELLS, Buffer, RProgram
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Weight


class RecentWeights:
    """What a cache holds of weights, which begins empty.

    Parameters
    ----------
    room : float
        Bytes; a single weight may take more.
    buffers : sequence of Buffer
        Of the program.
    """

    def __init__(self, room: float, buffers: Sequence[Buffer]) -> None:
        self.room = room
        self._buffers = buffers
        #: Cells that are there, by weight; the latest last.
        self._cells: OrderedDict[int, int] = OrderedDict()
        self._nbytes = 0.0

    def read(self, weight: Weight, cells: int) -> int:
        """Those of the cells that were there; all are from now on."""
        held, cell = self._cells, weight.nbytes / CELLS
        known = held.get(weight.buffer, 0)
        held[weight.buffer] = known | cells
        held.move_to_end(weight.buffer)
        self._nbytes += (cells & ~known).bit_count() * cell
        while len(held) > 1 and self._nbytes > self.room:
            other, gone = held.popitem(last=False)
            self._nbytes -= gone.bit_count() * self._buffers[other].nbytes / CELLS
        return cells & known

    def holds_all_of(self, weight: Weight) -> bool:
        """Whether what was read of the latest weight fits."""
        return self._cells[weight.buffer].bit_count() * weight.nbytes / CELLS <= self.room


class LastLevel:
    """The weights in each complex's last-level cache.

    Only constants take room: what operators hand over is small beside them where they do not fit.
    """

    def __init__(self, program: RProgram, costs: CostModel) -> None:
        places = costs.topology.complexes if costs.topology is not None else (0,)
        self._places = [places[veu % len(places)] for veu in range(program.num_veus)]
        self._caches = {
            place: RecentWeights(costs.l3_bytes, program.buffers) for place in self._places
        }
        #: Whether any weight can be lost.
        self.overflows = program.constant_bytes > costs.l3_bytes
        #: Cells that any vEU of a complex has read.
        self._seen: dict[tuple[int, int], int] = {}

    def lost_bytes(self, veu: int, weight: Weight, cells: int) -> float:
        """Bytes of ``cells`` that the cache had and has lost; it has them from now on."""
        place = self._places[veu]
        there = self._caches[place].read(weight, cells)
        seen = self._seen.get((place, weight.buffer), 0)
        self._seen[place, weight.buffer] = seen | cells
        return (cells & seen & ~there).bit_count() * weight.nbytes / CELLS
