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
from tvm_rammer.rprogram.program import CELLS, Buffer, RProgram, RTask, cell_rows, cells_by_row
from tvm_rammer.rprogram.rows import root_of
from tvm_rammer.schedule.costs import CostModel


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
    vEUs have written to, each of these has the part that it reads. What is written costs nothing:
    memory is planned so that vEUs write where they wrote before (:class:`~.arena.Arena`).

    Parameters
    ----------
    program : RProgram
    costs : CostModel
    """

    def __init__(self, program: RProgram, costs: CostModel) -> None:
        self.program = program
        self.costs = costs
        self._pairs = costs.pairs()
        self._free = not costs.moves_data(program.num_veus)
        self._drawn = [0.0] * program.num_veus
        self._written: dict[int, list[_Written]] = defaultdict(list)
        self._fetched: dict[tuple[int, int], int] = {}
        self._moves: dict[tuple[int, int, int], list[tuple[int, str, int]]] = {}
        self._roots = [root_of(program.buffers, number) for number in range(len(program.buffers))]

    def seconds(self, veu: int, task: RTask, nbytes: float) -> float:
        """Seconds of an rTask that reads and writes ``nbytes``; to be asked in order of time."""
        if self._free:
            return 0.0
        found = self.waiting(veu, task)
        self._drawn[veu] += nbytes
        for buffer, mode, cells in self._moved(task):
            if mode == "write":
                piece = _Written(veu, buffer, cells, self._drawn[veu])
                self._written[self._roots[buffer]].append(piece)
            else:
                known = self._fetched.get((veu, buffer), 0)
                self._fetched[veu, buffer] = known | cells
        return found

    def waiting(self, veu: int, task: RTask) -> float:
        """Seconds of an rTask if it ran now."""
        arriving: dict[Distance, float] = defaultdict(float)
        reading: dict[int, int] = {}
        for buffer, mode, cells in self._moved(task):
            if mode != "write":
                new = cells & ~reading.get(buffer, self._fetched.get((veu, buffer), 0))
                reading[buffer] = reading.get(buffer, 0) | cells
                for distance, held in self._written_by_others(veu, buffer, new).items():
                    arriving[distance] += held
        pairs = [(self._pairs[distance], held) for distance, held in arriving.items() if held]
        first = max((pair.transfer for pair, _ in pairs), default=0.0)
        return first + sum(held * pair.transfer_byte for pair, held in pairs)

    def _moved(self, task: RTask) -> list[tuple[int, str, int]]:
        """Buffer, mode and cells of each argument of a task that some task has written."""
        key = (task.operator, task.start, task.stop)
        if key not in self._moves:
            operator = self.program.operators[task.operator]
            kernel = self.program.kernels[operator.kernel]
            self._moves[key] = [
                (buffer, mode, kernel.touched(pointer, task.start, task.stop))
                for pointer, (buffer, mode) in enumerate(
                    zip(operator.arguments, kernel.modes, strict=True)
                )
                if self.program.buffers[buffer].space not in ("constant", "input")
            ]
        return self._moves[key]

    def _written_by_others(self, veu: int, buffer: int, cells: int) -> dict[Distance, float]:
        """Bytes of what is about to be read that other vEUs have, by how far these are."""
        pieces = self._written[self._roots[buffer]]
        if not cells or all(writer == veu for writer, *_ in pieces):
            return {}
        own: dict[int, int] = defaultdict(int)
        theirs: dict[tuple[Distance, int], int] = defaultdict(int)
        drawn, most, topology = self._drawn, self.costs.l2_bytes, self.costs.topology
        distance: Distance = "complex"
        for writer, written, held, when in pieces:
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
