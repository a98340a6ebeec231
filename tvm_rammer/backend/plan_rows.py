"""What every back end's table of a plan has: rows of rTasks, their waits, and their pointers.

In int32 words::

    starts     segments x (vEUs + 1): row where each vEU's part of a segment begins
    rows       8 words per rTask, see Row; grouped by segment, then by vEU
    waits      2 words per wait: (vEU, count); rows that wait for the same share them
    operands   2 words per pointer: (base * 64 + offset % 64, offset // 64)

A *segment* is what one launch runs: the whole program, or one wavefront. Each back end puts a
header of its own before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil

import numpy as np
import numpy.typing as npt

from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import ALIGNMENT, Buffer, RProgram
from tvm_rammer.rprogram.rows import root_of, rows_of

#: Words of a row, of a wait and of an operand.
ROW_WORDS, WAIT_WORDS, OPERAND_WORDS = 8, 2, 2
#: Base pointers that every kernel has before its inputs: the arena and the constants.
FIRST_INPUT_BASE = 2


class Row(IntEnum):
    """Words of a row."""

    KERNEL = 0
    START = 1
    STOP = 2
    OPERANDS = 3
    FIRST_WAIT = 4
    LAST_WAIT = 5
    SIGNAL = 6
    VEU = 7


@dataclass(frozen=True)
class BaseLayout:
    """Which base pointer is which: arena, constants, inputs, outputs."""

    num_inputs: int
    num_outputs: int

    @classmethod
    def of(cls, signature: RegionSignature) -> BaseLayout:
        """The layout of a region's kernel."""
        return cls(len(signature.inputs), len(signature.outputs))

    @property
    def num_bases(self) -> int:
        return FIRST_INPUT_BASE + self.num_inputs + self.num_outputs

    def base(self, buffer: Buffer) -> int:
        """Which base pointer a buffer's offset counts from."""
        inputs = FIRST_INPUT_BASE
        firsts = {"arena": 0, "constant": 1, "input": inputs, "output": inputs + self.num_inputs}
        return firsts[buffer.space] + buffer.index


@dataclass(frozen=True)
class PlanRows:
    """The parts of a table, int64 words, each two-dimensional.

    Attributes
    ----------
    starts : ndarray
        Of shape (segments, vEUs + 1); the last one of a segment is where its rows end.
    rows, waits, operands : ndarray
        Of :data:`ROW_WORDS`, :data:`WAIT_WORDS` and :data:`OPERAND_WORDS` columns.
    """

    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    waits: npt.NDArray[np.int64]
    operands: npt.NDArray[np.int64]


def count_segments(program: RProgram, by_wave: bool) -> int:
    """How many launches run a program."""
    return max(1, program.num_waves) if by_wave else 1


def row_numbers(program: RProgram, by_wave: bool) -> dict[tuple[int, int], int]:
    """The row of every rTask by its vEU and position: by segment, then by vEU, then in order."""
    places = sorted(
        (task.wave if by_wave else 0, veu, position) for veu, position, task in program.tasks()
    )
    return {(veu, position): row for row, (_, veu, position) in enumerate(places)}


def plan_rows(
    program: RProgram,
    layout: BaseLayout,
    kernel_ids: Mapping[str, int],
    arena_start: int,
    by_wave: bool,
    with_waits: bool = True,
) -> PlanRows:
    """Encode a verified program.

    Parameters
    ----------
    program : RProgram
        With arena offsets.
    layout : BaseLayout
        Of the region's kernel.
    kernel_ids : mapping of str to int
        The dispatcher's number of every rKernel body.
    arena_start : int
        Bytes of the arena tensor before the arena proper.
    by_wave : bool
        One segment per wavefront instead of one for all.
    with_waits : bool
        Without, rows wait for nobody and signal nothing.
    """
    places = row_numbers(program, by_wave)
    operands, first_operand = _operands(program, layout, arena_start)
    waits, of_task = _waits(program) if with_waits else ([], {})
    awaited = set(waits)
    rows = np.zeros((program.num_tasks, ROW_WORDS), np.int64)
    for veu, position, task in program.tasks():
        row = rows[places[veu, position]]
        row[Row.KERNEL] = kernel_ids[program.kernel_of(task.operator).name]
        row[Row.START], row[Row.STOP] = task.start, task.stop
        row[Row.OPERANDS] = first_operand[task.operator]
        row[Row.FIRST_WAIT], row[Row.LAST_WAIT] = of_task.get(id(task.waits), (0, 0))
        row[Row.SIGNAL] = position + 1 if (veu, position + 1) in awaited else 0
        row[Row.VEU] = veu
    return PlanRows(_starts(program, by_wave), rows, _pairs(waits), _pairs(operands))


def wait_milliseconds(seconds: float) -> int:
    """A header's word for how long a wait may take, rounded up: 0 would be to wait for ever."""
    return ceil(seconds * 1e3)


def as_words(program: RProgram, parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int32]:
    """The parts of a table one after the other.

    Raises
    ------
    PlanError
        When an offset is too large.
    """
    words = np.concatenate(parts)
    if words.max() > np.iinfo(np.int32).max:
        raise PlanError(
            f"plan of {program.name}: an offset exceeds {ALIGNMENT * 2**31:,} bytes; "
            "split the model into smaller parts"
        )
    return words.astype(np.int32)


def _waits(program: RProgram) -> tuple[list[tuple[int, int]], dict[int, tuple[int, int]]]:
    """All waits, and by the identity of a task's waits where they begin and end."""
    waits: list[tuple[int, int]] = []
    found: dict[int, tuple[int, int]] = {}
    for _, _, task in program.tasks():
        if id(task.waits) not in found:
            first = len(waits)
            waits += [(wait.veu, wait.count) for wait in task.waits]
            found[id(task.waits)] = first, len(waits)
    return waits, found


def _starts(program: RProgram, by_wave: bool) -> npt.NDArray[np.int64]:
    """Where each vEU's rows of a segment begin, and where the last one's end."""
    counts = np.zeros((count_segments(program, by_wave), program.num_veus), np.int64)
    for veu, _, task in program.tasks():
        counts[task.wave if by_wave else 0, veu] += 1
    ends = np.cumsum(counts).reshape(counts.shape)
    return np.concatenate([ends[:, :1] - counts[:, :1], ends], axis=1)


def _operands(
    program: RProgram, layout: BaseLayout, arena_start: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """The pointers of all operators, and where those of each begin."""
    operands: list[tuple[int, int]] = []
    firsts = []
    for operator in program.operators:
        firsts.append(len(operands))
        for number in operator.arguments:
            whole = program.buffers[root_of(program.buffers, number)]
            offset = rows_of(program.buffers, number).start
            offset += arena_start if whole.space == "arena" else 0
            lines, rest = divmod(offset, ALIGNMENT)
            operands.append((layout.base(whole) * ALIGNMENT + rest, lines))
    return operands, firsts


def _pairs(items: list[tuple[int, int]]) -> npt.NDArray[np.int64]:
    return np.array(items, np.int64).reshape(-1, 2)
