"""Prove that every legal interleaving of an rProgram computes what its operators mean.

Two accesses *conflict* if their buffers share bytes, at least one writes, and they belong to rTasks
of different operators (tiles of one operator are independent by construction, and an operator may
not read what it writes). The proof:

1. Every tile runs exactly once, and waits cannot form a cycle, so every run comes to its end.
2. If all conflicting pairs are ordered by happens-before, then every interleaving has them in the
   same order. Hence each read sees the writes of the same rTasks, whichever interleaving runs, and
   what holds in one linear extension holds in all.
3. One sweep along a linear extension checks the premise with vector clocks: access ``a`` on vEU
   ``u`` happens before ``b`` if and only if the clock of ``b`` covers the position of ``a`` on
   ``u``. Per byte and vEU only the last access of a kind needs to be looked at, because program
   order puts the others before it; with one exception, an operator's own writes: the last write by
   any other operator is kept beside them. (FastTrack, Flanagan and Freund, PLDI 2009.)
4. The same sweep checks that each read sees, on every byte, the complete result of its buffer's
   producer, or of the producer of the part that the byte is in: all of the tiles, written since any
   other buffer had these bytes.

rTasks of one operator are looked at together, as far as the order allows: nothing that they are
asked about changes between them.

Bytes that lie in the same buffers behave alike: they are one *piece* of memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.happens_before import Clocks, Place, task_label, vector_clocks
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.rows import Ints, Rows, pieces, root_of
from tvm_rammer.rprogram.structure import check_structure

Counts = npt.NDArray[np.int32]


def verify(program: RProgram) -> None:
    """Prove that a program is well-formed and safe, or say what is wrong with it.

    Raises
    ------
    PlanError
        Naming the rTasks, the buffers and the bytes.
    """
    rows = check_structure(program)
    _Sweep(program, rows, vector_clocks(program)).run()


@dataclass(frozen=True)
class _Footprint:
    """The pieces that the rTasks of an operator read and write, and the buffer of each.

    The buffer is the one that its producer writes: what is read may consist of such buffers.
    """

    reads: Ints
    buffers_read: Ints
    writes: Ints
    buffers_written: Ints


@dataclass
class _Batch:
    """rTasks of one operator, in order."""

    operator: int
    places: list[Place]

    @cached_property
    def ends(self) -> dict[int, int]:
        """By vEU, how many rTasks it has run when the last one of these has."""
        return {veu: position + 1 for veu, position in self.places}


def _batches(program: RProgram, order: Sequence[Place]) -> list[_Batch]:
    """A linear extension of all rTasks that have tiles, those of one operator together.

    An rTask is in the last batch of its operator, unless something that it comes after is in a
    later one.
    """
    found: list[_Batch] = []
    latest: dict[int, int] = {}
    #: By place, and by the identity of waits: the last batch of what comes before.
    reached: list[list[int]] = [[] for _ in program.veus]
    awaited: dict[int, int] = {}
    for veu, position in order:
        task, mine = program.veus[veu][position], reached[veu]
        before = mine[-1] if mine else -1
        if task.waits:
            if id(task.waits) not in awaited:
                theirs = (reached[wait.veu][wait.count - 1] for wait in task.waits)
                awaited[id(task.waits)] = max(theirs)
            before = max(before, awaited[id(task.waits)])
        if not task.gathers:
            number = latest.get(task.operator, -1)
            if number < max(before, 0):
                number = latest[task.operator] = len(found)
                found.append(_Batch(task.operator, []))
            found[number].places.append((veu, position))
            before = number
        mine.append(before)
    return found


class _Sweep:
    """What the accesses so far have left behind on every piece of memory."""

    def __init__(self, program: RProgram, rows: list[Rows], clocks: Clocks) -> None:
        self.program = program
        self.rows = rows
        self.clocks = clocks
        self.pieces, count = _pieces_of_written_memory(rows)
        self.producer = {b: op for op in range(len(program.operators)) for b in program.writes(op)}
        self.written = self._written_buffers(count)
        self.footprints = [self._footprint(op) for op in range(len(program.operators))]
        self.tiles_of = np.array(
            [
                program.kernel_of(self.producer[b]).num_tiles if b in self.producer else 0
                for b in range(len(program.buffers))
            ],
            np.int64,
        )
        # Positions count from 1 (0: never), per piece and vEU. `writer` is the operator behind
        # `last_write`, and `older_write` is the last write by an operator other than that.
        self.last_read = np.zeros((count, program.num_veus), np.int32)
        self.last_write = np.zeros_like(self.last_read)
        self.older_write = np.zeros_like(self.last_read)
        self.writer = np.full_like(self.last_read, -1)
        # Per piece: the buffer that has it, and how many tiles of its producer since it has.
        self.holder = np.full(count, -1, np.int64)
        self.tiles = np.zeros(count, np.int64)

    def run(self) -> None:
        for batch in _batches(self.program, self.clocks.order):
            first_row = self.clocks.first_row
            clocks = self.clocks.table[[first_row[veu] + place for veu, place in batch.places]]
            self._read(batch, clocks)
            self._write(batch, clocks)
        for number, buffer in enumerate(self.program.buffers):
            where, written = self.pieces[number], self.written[number]
            if buffer.space == "output" and not self._intact(where, written):
                raise PlanError(
                    f"output {buffer.name!r} is not written; have an operator write all of it"
                )

    def _read(self, batch: _Batch, clocks: Counts) -> None:
        foot = self.footprints[batch.operator]
        if not foot.reads.size:
            return
        self._expect_ordered(batch, "read", "write", self.last_write[foot.reads], clocks)
        if not self._intact(foot.reads, foot.buffers_read):
            raise PlanError(self._stale_message(*batch.places[0]))
        self.last_read[foot.reads[:, None], list(batch.ends)] = list(batch.ends.values())

    def _write(self, batch: _Batch, clocks: Counts) -> None:
        foot, op = self.footprints[batch.operator], batch.operator
        where = foot.writes
        others = np.where(self.writer[where] == op, self.older_write[where], self.last_write[where])
        self._expect_ordered(batch, "write", "write", others, clocks)
        self._expect_ordered(batch, "write", "read", self.last_read[where], clocks)

        here = where[:, None], list(batch.ends)
        self.older_write[here] = others[:, list(batch.ends)]
        self.writer[here] = op
        self.last_write[here] = list(batch.ends.values())

        tasks = (self.program.veus[veu][position] for veu, position in batch.places)
        kept = self.holder[where] == foot.buffers_written
        self.tiles[where] = np.where(kept, self.tiles[where], 0)
        self.tiles[where] += sum(task.stop - task.start for task in tasks)
        self.holder[where] = foot.buffers_written

    def _intact(self, where: Ints, buffers: Ints) -> bool:
        """Whether every piece has the complete result of the buffer that it should have."""
        return bool(
            (self.holder[where] == buffers).all()
            and (self.tiles[where] == self.tiles_of[buffers]).all()
        )

    def _expect_ordered(
        self, batch: _Batch, access: str, earlier_access: str, earlier: Counts, clocks: Counts
    ) -> None:
        """The rTasks' clocks cover ``earlier``, positions per piece of their access and vEU."""
        unordered = (earlier.max(axis=0, initial=0) > clocks).any(axis=1)
        if not unordered.any():
            return
        number = int(unordered.argmax())
        veu, position = batch.places[number]
        uncovered = earlier > clocks[number]
        row, other_veu = (int(i) for i in np.argwhere(uncovered)[0])
        other = (other_veu, int(earlier[row, other_veu]) - 1)
        foot = self.footprints[batch.operator]
        piece = int((foot.reads if access == "read" else foot.writes)[row])
        here = (veu, position)
        mine = self._buffer_at(*here, access, piece)
        theirs = self._buffer_at(*other, earlier_access, piece)
        shared = self.rows[mine].between(self.rows[theirs])
        pair = [(other, earlier_access, theirs), (here, access, mine)]
        # Named in the order in which they would run one by one.
        first, second = (
            f"{task_label(self.program, *place)} {verb}s {self._name(buffer)}"
            for place, verb, buffer in sorted(pair, key=lambda a: self.clocks.order.index(a[0]))
        )
        raise PlanError(
            f"{first} and {second} on {shared} "
            f"in no fixed order; add a wait between them or place the buffers apart"
        )

    def _stale_message(self, veu: int, position: int) -> str:
        foot = self.footprints[self.program.veus[veu][position].operator]
        row = next(
            row
            for row in range(len(foot.reads))
            if not self._intact(foot.reads[row : row + 1], foot.buffers_read[row : row + 1])
        )
        piece, buffer = int(foot.reads[row]), int(foot.buffers_read[row])
        where, producer = str(self.rows[buffer]), self.producer.get(buffer)
        holder = int(self.holder[piece])
        if producer is None:
            reason = "which no operator writes; have one write it before"
        elif holder not in (-1, buffer):
            where = self.rows[buffer].between(self.rows[holder])
            other = self.program.operators[self.producer[holder]].name
            reason = (
                f"where {other!r} has written {self._name(holder)} last; "
                "place the buffers apart or change the order"
            )
        else:
            done = int(self.tiles[piece]) if holder == buffer else 0
            name, tiles = self.program.operators[producer].name, self.tiles_of[buffer]
            reason = (
                f"where {done} of the {tiles} tiles of its producer {name!r} are in place; "
                "let it come after all of them"
            )
        label = task_label(self.program, veu, position)
        return f"{label} reads {self._name(buffer)} on {where}, {reason}"

    def _buffer_at(self, veu: int, position: int, access: str, piece: int) -> int:
        """The buffer that the rTask reads or writes on a piece."""
        foot = self.footprints[self.program.veus[veu][position].operator]
        if access == "read":
            return int(foot.buffers_read[foot.reads == piece][0])
        return int(foot.buffers_written[foot.writes == piece][0])

    def _name(self, buffer: int) -> str:
        return f"buffer {self.program.buffers[buffer].name!r}"

    def _written_buffers(self, count: int) -> list[Ints]:
        """For every piece of a buffer, which buffer's producer writes it.

        The buffer itself, a part of it, or another part of the same whole; itself if none does.
        """
        buffers = self.program.buffers
        kin: defaultdict[int, list[int]] = defaultdict(list)
        for number in self.producer:
            kin[root_of(buffers, number)].append(number)
        writer = np.empty(count, np.int64)
        found = []
        for number, here in enumerate(self.pieces):
            writer[here] = number
            if number not in self.producer:
                for other in kin[root_of(buffers, number)]:
                    writer[self.pieces[other]] = other
            found.append(writer[here])
        return found

    def _footprint(self, op: int) -> _Footprint:
        reads, writes = sorted(set(self.program.reads(op))), self.program.writes(op)
        return _Footprint(*self._joined(reads), *self._joined(writes))

    def _joined(self, buffers: list[int] | tuple[int, ...]) -> tuple[Ints, Ints]:
        if not buffers:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if len(buffers) == 1:
            return self.pieces[buffers[0]], self.written[buffers[0]]
        return (
            np.concatenate([self.pieces[b] for b in buffers]),
            np.concatenate([self.written[b] for b in buffers]),
        )


def _pieces_of_written_memory(rows: list[Rows]) -> tuple[list[Ints], int]:
    """The pieces of every buffer; inputs and constants have none: nobody writes them."""
    empty = Rows("nowhere", 0, 0)
    return pieces([r if r.space.startswith(("arena", "output")) else empty for r in rows])
