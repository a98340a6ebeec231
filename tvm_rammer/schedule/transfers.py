"""What rTasks read that lies in the caches of other vEUs, and how long they wait for it.

A cache gives up what its core has just written more slowly than the last-level cache gives what
nobody else holds: on Zen 4 after a tenth of a microsecond, at a third of the bandwidth. Small
operators that are spread over vEUs take longer to fetch their operands than to compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from operator import mul
from typing import NamedTuple

from tvm_rammer.machine.topology import Distance
from tvm_rammer.rprogram.program import (
    CELLS,
    Buffer,
    RKernel,
    RProgram,
    RTask,
    cell_rows,
    cells_by_row,
)
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Demands


class _Written(NamedTuple):
    """Cells of a buffer that a vEU wrote when so many bytes had gone through its cache."""

    veu: int
    buffer: int
    cells: int
    drawn: float


class Transfers:
    """Seconds that rTasks wait for data of other vEUs.

    What a vEU wrote is in its own cache until as many bytes as that holds have gone through it, and
    then in the last-level cache, which is far from other complexes alone. One waits for the first
    line, as a core has many reads under way, and for all bytes. Of the cells that tiles of several
    vEUs have written to, each of these has the part that it reads. What is written costs nothing.

    Parameters
    ----------
    program : RProgram
    costs : CostModel
    demands : Demands
        Of the program's graph.
    """

    def __init__(self, program: RProgram, costs: CostModel, demands: Demands) -> None:
        self.program = program
        self.costs = costs
        self._pairs = costs.pairs()
        self._free = not costs.moves_data(program.num_veus)
        self._drawn = [0.0] * program.num_veus
        self._written: dict[int, list[_Written]] = defaultdict(list)
        #: Of the pieces of each buffer, with all of its parts: the vEU that wrote them; -1 if
        #: there are several.
        self._writer: dict[int, int] = {}
        self._fetched: dict[tuple[int, int], int] = {}
        self._kernels = [program.kernels[op.kernel] for op in program.operators]
        if not self._free:
            self._read, self._wrote = demands.read, demands.written

    def seconds(self, veu: int, task: RTask, nbytes: float) -> float:
        """Seconds of an rTask that reads and writes ``nbytes``; to be asked in order of time."""
        if self._free or task.start >= task.stop:
            return 0.0
        operator, start, stop = task.operator, task.start, task.stop
        kernel = self._kernels[operator]
        found = self._waiting(veu, kernel, task)
        self._drawn[veu] += nbytes
        for pointer, buffer, root in self._wrote[operator]:
            cells = kernel.touched(pointer, start, stop)
            self._written[root].append(_Written(veu, buffer, cells, self._drawn[veu]))
            if self._writer.setdefault(root, veu) != veu:
                self._writer[root] = -1
        return found

    def _waiting(self, veu: int, kernel: RKernel, task: RTask) -> float:
        """Seconds until all that an rTask reads has arrived, which is there from now on."""
        arriving: dict[Distance, float] = {}
        for pointer, buffer, root in self._read[task.operator]:
            # What it wrote itself alone is there.
            if self._writer.get(root, veu) == veu:
                continue
            cells = kernel.touched(pointer, task.start, task.stop)
            known = self._fetched.get((veu, buffer), 0)
            if new := cells & ~known:
                self._fetched[veu, buffer] = known | cells
                for distance, held in self._written_by_others(veu, buffer, root, new).items():
                    arriving[distance] = arriving.get(distance, 0.0) + held
        if not arriving:
            return 0.0
        pairs = [(self._pairs[distance], held) for distance, held in arriving.items() if held]
        first = max((pair.transfer for pair, _ in pairs), default=0.0)
        return first + sum(held * pair.transfer_byte for pair, held in pairs)

    def _written_by_others(
        self, veu: int, buffer: int, root: int, cells: int
    ) -> dict[Distance, float]:
        """Bytes of what is about to be read that other vEUs have, by how far these are."""
        own: dict[int, int] = defaultdict(int)
        theirs: dict[tuple[Distance, int], int] = defaultdict(int)
        drawn, most, topology = self._drawn, self.costs.l2_bytes, self.costs.topology
        distance: Distance = "complex"
        for writer, written, held, when in self._written[root]:
            if writer == veu:
                own[written] |= held
                continue
            if topology is not None:
                distance = topology.distance(veu, writer)
            if distance == "complex" and drawn[writer] - when > most:
                continue
            theirs[distance, written] |= held
        found: dict[Distance, float] = defaultdict(float)
        # What several others have written is fetched once, from the farthest.
        for distance, written in sorted(theirs, key=lambda key: -self._pairs[key[0]].transfer_byte):
            held = theirs[distance, written] & ~own[written]
            own[written] |= held
            found[distance] += common_bytes(self.program.buffers, buffer, cells, written, held)
        return found


def common_bytes(
    buffers: Sequence[Buffer], buffer: int, cells: int, other: int, held: int
) -> float:
    """Bytes that some cells of a buffer and of another one in the same place have in common."""
    if other == buffer:
        return buffers[buffer].nbytes * (cells & held).bit_count() / CELLS
    parts = [k for k in (buffer, other) if buffers[k].space == "part"]
    if len(parts) == 2:
        return 0.0
    rows, others = (prod(buffers[k].shape[:-1]) for k in (buffer, other))
    # In each row of cells the part has some columns of the whole, no matter which.
    down = cell_rows(rows) if rows == others else 1
    pairs = sum(map(mul, cells_by_row(cells, down), cells_by_row(held, down)))
    return buffers[parts[0]].nbytes * pairs * down / CELLS**2
