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
   producer: all of the tiles, written since any other buffer had these bytes.

Bytes that no buffer's start or end divides behave alike: they are one *interval*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.happens_before import Clocks, task_label, vector_clocks
from tvm_rammer.rprogram.program import RProgram, RTask
from tvm_rammer.rprogram.structure import Span, check_structure

Ints = npt.NDArray[np.int64]


def verify(program: RProgram) -> None:
    """Prove that a program is well-formed and safe, or say what is wrong with it.

    Raises
    ------
    PlanError
        Naming the rTasks, the buffers and the bytes.
    """
    spans = check_structure(program)
    _Sweep(program, spans).run(vector_clocks(program))


@dataclass(frozen=True)
class _Footprint:
    """The intervals that the rTasks of an operator read and write, and the buffer of each."""

    reads: Ints
    buffers_read: Ints
    writes: Ints
    buffers_written: Ints


class _Sweep:
    """What the accesses so far have left behind on every interval."""

    def __init__(self, program: RProgram, spans: list[Span]) -> None:
        self.program = program
        self.spans = spans
        self.intervals, count = _cut(spans)
        self.footprints = [self._footprint(op) for op in range(len(program.operators))]
        self.producer = {b: op for op in range(len(program.operators)) for b in program.writes(op)}
        self.tiles_of = np.array(
            [
                program.kernel_of(self.producer[b]).num_tiles if b in self.producer else 0
                for b in range(len(program.buffers))
            ],
            np.int64,
        )
        # Positions count from 1 (0: never), per interval and vEU. `writer` is the operator behind
        # `last_write`, and `older_write` is the last write by an operator other than that.
        self.last_read = np.zeros((count, program.num_veus), np.int32)
        self.last_write = np.zeros_like(self.last_read)
        self.older_write = np.zeros_like(self.last_read)
        self.writer = np.full_like(self.last_read, -1)
        # Per interval: the buffer that has it, and how many tiles of its producer since it has.
        self.holder = np.full(count, -1, np.int64)
        self.tiles = np.zeros(count, np.int64)

    def run(self, clocks: Clocks) -> None:
        for veu, position in clocks.order:
            task = self.program.veus[veu][position]
            clock = clocks.of(veu, position)
            self._read(veu, position, task, clock)
            self._write(veu, position, task, clock)
        for number, buffer in enumerate(self.program.buffers):
            if buffer.space == "output" and not self._intact(self.intervals[number], number):
                raise PlanError(
                    f"output {buffer.name!r} is not written; have an operator write all of it"
                )

    def _read(self, veu: int, position: int, task: RTask, clock: npt.NDArray[np.int32]) -> None:
        foot = self.footprints[task.operator]
        if not foot.reads.size:
            return
        self._expect_ordered(veu, position, "read", "write", self.last_write[foot.reads], clock)
        if not self._intact(foot.reads, foot.buffers_read):
            raise PlanError(self._stale_message(veu, position))
        self.last_read[foot.reads, veu] = position + 1

    def _write(self, veu: int, position: int, task: RTask, clock: npt.NDArray[np.int32]) -> None:
        foot, op = self.footprints[task.operator], task.operator
        where = foot.writes
        others = np.where(self.writer[where] == op, self.older_write[where], self.last_write[where])
        self._expect_ordered(veu, position, "write", "write", others, clock)
        self._expect_ordered(veu, position, "write", "read", self.last_read[where], clock)

        foreign = where[self.writer[where, veu] != op]
        self.older_write[foreign, veu] = self.last_write[foreign, veu]
        self.writer[foreign, veu] = op
        self.last_write[where, veu] = position + 1

        kept = self.holder[where] == foot.buffers_written
        self.tiles[where] = np.where(kept, self.tiles[where], 0) + (task.stop - task.start)
        self.holder[where] = foot.buffers_written

    def _intact(self, where: Ints, buffers: Ints | int) -> bool:
        """Whether every interval has the complete result of the buffer that it should have."""
        return bool(
            (self.holder[where] == buffers).all()
            and (self.tiles[where] == self.tiles_of[buffers]).all()
        )

    def _expect_ordered(
        self,
        veu: int,
        position: int,
        access: str,
        earlier_access: str,
        earlier: npt.NDArray[np.int32],
        clock: npt.NDArray[np.int32],
    ) -> None:
        """The rTask's clock covers ``earlier``, positions per interval of its access and vEU."""
        uncovered = earlier > clock
        if not uncovered.any():
            return
        row, other_veu = (int(i) for i in np.argwhere(uncovered)[0])
        other = (other_veu, int(earlier[row, other_veu]) - 1)
        foot = self.footprints[self.program.veus[veu][position].operator]
        interval = int((foot.reads if access == "read" else foot.writes)[row])
        mine = self._buffer_at(veu, position, access, interval)
        theirs = self._buffer_at(*other, earlier_access, interval)
        shared = self.spans[mine].intersection(self.spans[theirs])
        raise PlanError(
            f"{task_label(self.program, *other)} {earlier_access}s {self._name(theirs)} and "
            f"{task_label(self.program, veu, position)} {access}s {self._name(mine)} on {shared} "
            f"in no fixed order; add a wait between them or place the buffers apart"
        )

    def _stale_message(self, veu: int, position: int) -> str:
        foot = self.footprints[self.program.veus[veu][position].operator]
        row = next(
            row
            for row, b in enumerate(foot.buffers_read)
            if not self._intact(foot.reads[row : row + 1], int(b))
        )
        interval, buffer = int(foot.reads[row]), int(foot.buffers_read[row])
        span, producer = self.spans[buffer], self.producer.get(buffer)
        holder = int(self.holder[interval])
        if producer is None:
            reason = "which no operator writes; have one write it before"
        elif holder not in (-1, buffer):
            span = span.intersection(self.spans[holder])
            other = self.program.operators[self.producer[holder]].name
            reason = (
                f"where {other!r} has written {self._name(holder)} last; "
                "place the buffers apart or change the order"
            )
        else:
            done = int(self.tiles[interval]) if holder == buffer else 0
            name, tiles = self.program.operators[producer].name, self.tiles_of[buffer]
            reason = (
                f"where {done} of the {tiles} tiles of its producer {name!r} are in place; "
                "let it come after all of them"
            )
        label = task_label(self.program, veu, position)
        return f"{label} reads {self._name(buffer)} on {span}, {reason}"

    def _buffer_at(self, veu: int, position: int, access: str, interval: int) -> int:
        """The buffer that the rTask reads or writes on an interval."""
        foot = self.footprints[self.program.veus[veu][position].operator]
        if access == "read":
            return int(foot.buffers_read[foot.reads == interval][0])
        return int(foot.buffers_written[foot.writes == interval][0])

    def _name(self, buffer: int) -> str:
        return f"buffer {self.program.buffers[buffer].name!r}"

    def _footprint(self, op: int) -> _Footprint:
        reads, writes = sorted(set(self.program.reads(op))), self.program.writes(op)
        return _Footprint(*self._joined(reads), *self._joined(writes))

    def _joined(self, buffers: list[int] | tuple[int, ...]) -> tuple[Ints, Ints]:
        pieces = [self.intervals[b] for b in buffers]
        if not pieces:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(pieces), np.repeat(buffers, [len(piece) for piece in pieces])


def _cut(spans: list[Span]) -> tuple[list[Ints], int]:
    """The intervals of every buffer, and how many there are.

    The arena is cut wherever a buffer starts or ends, and an output is one interval. Inputs and
    constants have none: nobody writes them.
    """
    arena = [span for span in spans if span.space == "arena" and span.start < span.stop]
    cuts = np.unique(np.array([(span.start, span.stop) for span in arena], np.int64))
    count = max(len(cuts) - 1, 0)
    intervals = []
    for span in spans:
        first, last = 0, 0
        if span.start < span.stop and span.space == "arena":
            first, last = (int(i) for i in np.searchsorted(cuts, (span.start, span.stop)))
        elif span.start < span.stop and span.space.startswith("output"):
            first, last = count, count + 1
            count += 1
        intervals.append(np.arange(first, last))
    return intervals, count
