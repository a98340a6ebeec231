"""Run an rProgram on symbols: whose writes each read sees, in any legal interleaving."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_rammer.rprogram import Interpreter, RProgram, RTask
from tvm_rammer.rprogram.happens_before import Place
from tvm_rammer.rprogram.rows import Rows, pieces, rows_of

#: Stands for the producer of bytes that no rTask has written.
UNWRITTEN = -1

_NOWHERE = Rows("nowhere", 0, 0)


def interpret_symbolic(
    program: RProgram, order: Sequence[Place]
) -> dict[tuple[int, int, int], frozenset[int]]:
    """Whose writes does each read of an arena or output buffer see?

    Parameters
    ----------
    program : RProgram
        Its tiles run at most once each.
    order : sequence of (vEU, position)
        A legal interleaving.

    Returns
    -------
    dict
        From (vEU, position, argument) of a read to the operators that its bytes may come from. A
        read of a complete result has one, the producer, or those of its parts. Until all tiles of
        an operator have run, the bytes may still be what was there before, :data:`UNWRITTEN` if
        nothing was.
    """
    interpreter = SymbolicInterpreter(program)
    interpreter.run(order)
    return interpreter.seen


class SymbolicInterpreter(Interpreter):
    """Keeps, for every piece of memory, the log of the writes that may still show.

    Attributes
    ----------
    seen : dict
        See :func:`interpret_symbolic`; that of the last run.
    """

    def __init__(self, program: RProgram) -> None:
        super().__init__(program)
        self.seen: dict[tuple[int, int, int], frozenset[int]] = {}
        rows = [rows_of(program.buffers, number) for number in range(len(program.buffers))]
        # Nobody writes inputs and constants.
        found, count = pieces([r if _is_written(r) else _NOWHERE for r in rows])
        self._pieces = [piece.tolist() for piece in found]
        self._reads = [self._pieces_read(number) for number in range(len(program.operators))]
        self._writes = [self._pieces_written(number) for number in range(len(program.operators))]
        self._log: list[list[tuple[int, int]]] = [[] for _ in range(count)]

    def run(self, order: Sequence[Place]) -> None:
        """Run on memory that nothing has written; an interpreter may run many interleavings."""
        self.seen = {}
        self._log = [[(UNWRITTEN, 0)] for _ in self._log]
        super().run(order)

    def run_task(self, veu: int, position: int, task: RTask) -> None:
        for argument, where in self._reads[task.operator]:
            self.seen[veu, position, argument] = frozenset(
                writer for piece in where for writer, _ in self._log[piece]
            )
        tiles = self.program.kernel_of(task.operator).num_tiles
        for piece in self._writes[task.operator]:
            self._write(self._log[piece], task, tiles)

    def _pieces_read(self, operator: int) -> list[tuple[int, list[int]]]:
        """The arguments of an operator that are read from the arena or an output."""
        buffers, modes = self.program.buffers, self.program.kernel_of(operator).modes
        return [
            (argument, self._pieces[buffer])
            for argument, buffer in enumerate(self.program.operators[operator].arguments)
            if modes[argument] == "read" and _is_written(rows_of(buffers, buffer))
        ]

    def _pieces_written(self, operator: int) -> list[int]:
        return [p for buffer in self.program.writes(operator) for p in self._pieces[buffer]]

    @staticmethod
    def _write(log: list[tuple[int, int]], task: RTask, num_tiles: int) -> None:
        """An operator whose last tile has run covers all that was there before its first one."""
        log.append((task.operator, task.stop - task.start))
        mine = [i for i, (writer, _) in enumerate(log) if writer == task.operator]
        if sum(log[i][1] for i in mine) == num_tiles:
            del log[: mine[0]]


def _is_written(rows: Rows) -> bool:
    return rows.space.startswith(("arena", "output"))
