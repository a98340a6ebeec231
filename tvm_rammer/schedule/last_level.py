"""What weights the last-level caches lose while a program runs."""

from __future__ import annotations

from collections import OrderedDict

from tvm_rammer.rprogram.program import CELLS, RProgram
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Weight


class LastLevel:
    """The weights in each complex's last-level cache; the one not read for longest goes first.

    Only constants take room: what operators hand over is small beside them where they do not fit.

    Parameters
    ----------
    program : RProgram
    costs : CostModel
    """

    def __init__(self, program: RProgram, costs: CostModel) -> None:
        self._sizes = [buffer.nbytes for buffer in program.buffers]
        self._room = costs.l3_bytes
        places = costs.topology.complexes if costs.topology is not None else (0,)
        self._places = [places[veu % len(places)] for veu in range(program.num_veus)]
        #: Whether any weight can be lost.
        self.overflows = program.constant_bytes > self._room
        #: Cells that each complex has in its cache, by weight; the latest last.
        self._held: dict[int, OrderedDict[int, int]] = {}
        self._filled: dict[int, float] = {}
        #: Cells that any vEU of a complex has read.
        self._seen: dict[tuple[int, int], int] = {}

    def lost_bytes(self, veu: int, weight: Weight, cells: int) -> float:
        """Bytes of ``cells`` that the cache had and has lost; it has them from now on."""
        place = self._places[veu]
        held = self._held.setdefault(place, OrderedDict())
        there = held.get(weight.buffer, 0)
        seen = self._seen.get((place, weight.buffer), 0)
        self._seen[place, weight.buffer] = seen | cells
        held[weight.buffer] = there | cells
        held.move_to_end(weight.buffer)
        cell = weight.nbytes / CELLS
        filled = self._filled.get(place, 0.0) + (cells & ~there).bit_count() * cell
        while len(held) > 1 and filled > self._room:
            other, gone = held.popitem(last=False)
            filled -= gone.bit_count() * self._sizes[other] / CELLS
        self._filled[place] = filled
        return (cells & seen & ~there).bit_count() * cell
