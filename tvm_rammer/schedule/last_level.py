"""What weights the last-level caches lose while a program runs."""

from __future__ import annotations

from tvm_rammer.rprogram.program import CELLS, RProgram
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Weight
from tvm_rammer.schedule.recent_weights import RecentWeights


class LastLevel:
    """The weights in each complex's last-level cache.

    Only constants take room: what operators hand over is small beside them where they do not fit.

    Parameters
    ----------
    program : RProgram
    costs : CostModel
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
