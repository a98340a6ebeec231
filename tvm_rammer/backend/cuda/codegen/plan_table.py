"""The table of a plan: an rProgram as the int32 tensor that resident blocks walk.

The generated code holds every distinct rTask body once and a dispatcher; everything else about a
plan is in this table. Another plan for the same bodies is another table.

Its shape is (segments, vEUs, words): what the host must know, which cannot read it, is how many
launches there are of how many blocks. Read from start to end it holds, in int32 words::

    header     8 words, see PlanWord
    starts     segments x (vEUs + 1): row where each vEU's part of a segment begins
    rows       8 words per rTask, see TaskWord; grouped by segment, then by vEU
    waits      2 words per wait: (vEU, count)
    operands   2 words per pointer: (base * 64 + offset % 64, offset // 64)

A *segment* is what one launch runs: the whole program, or one wavefront. The arena tensor begins
with a counter for every vEU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import ceil

import numpy as np
import numpy.typing as npt

from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import ALIGNMENT, Buffer, RProgram, RTask, aligned
from tvm_rammer.rprogram.rows import root_of, rows_of

#: Words of a row, of a wait and of an operand.
TASK_WORDS, WAIT_WORDS, OPERAND_WORDS = 8, 2, 2
#: Bytes from one counter to the next: a sector of the second-level cache each.
COUNTER_BYTES = 32
#: Base pointers that every kernel has before its inputs: the arena and the constants.
FIRST_INPUT_BASE = 2
_HEADER_WORDS = 8


class PlanWord(IntEnum):
    """Words of the header."""

    STARTS = 0
    ROWS = 1
    WAITS = 2
    OPERANDS = 3
    WAIT_LIMIT = 4


class TaskWord(IntEnum):
    """Words of a row."""

    KERNEL = 0
    START = 1
    STOP = 2
    OPERAND = 3
    FIRST_WAIT = 4
    LAST_WAIT = 5
    SIGNAL = 6


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


def counter_bytes(program: RProgram) -> int:
    """Bytes of the arena tensor before the arena proper."""
    return aligned(program.num_veus * COUNTER_BYTES)


def arena_bytes(program: RProgram) -> int:
    """Bytes of the tensor that a kernel takes as its arena."""
    return counter_bytes(program) + aligned(program.arena_bytes)


def plan_table(
    program: RProgram,
    layout: BaseLayout,
    kernel_ids: Mapping[str, int],
    by_wave: bool,
    wait_limit: float,
) -> npt.NDArray[np.int32]:
    """Encode a verified program.

    Parameters
    ----------
    program : RProgram
        With arena offsets.
    layout : BaseLayout
        Of the region's kernel.
    kernel_ids : mapping of str to int
        The dispatcher's number of every rKernel body.
    by_wave : bool
        One segment per wavefront instead of one for all.
    wait_limit : float
        Seconds after which a wait gives the run up; 0 waits for ever.

    Raises
    ------
    PlanError
        When by wave an rTask needs another one of its wave, or an offset is too large.
    """
    segments = max(1, program.num_waves) if by_wave else 1
    starts, places = _starts(program, segments, by_wave)
    operands, first_operand = _operands(program, layout)
    awaited = {
        (wait.veu, wait.count)
        for veu, position, task in program.tasks()
        for wait in _waits(program, veu, position, task, by_wave)
    }
    rows = np.zeros((program.num_tasks, TASK_WORDS), np.int64)
    waits: list[tuple[int, int]] = []
    for veu, position, task in program.tasks():
        row = rows[places[veu, position]]
        row[TaskWord.KERNEL] = kernel_ids[program.kernel_of(task.operator).name]
        row[TaskWord.START], row[TaskWord.STOP] = task.start, task.stop
        row[TaskWord.OPERAND] = first_operand[task.operator]
        row[TaskWord.FIRST_WAIT] = len(waits)
        waits += [(w.veu, w.count) for w in _waits(program, veu, position, task, by_wave)]
        row[TaskWord.LAST_WAIT] = len(waits)
        row[TaskWord.SIGNAL] = position + 1 if (veu, position + 1) in awaited else 0
    parts = [starts.ravel(), rows.ravel(), _pairs(waits).ravel(), _pairs(operands).ravel()]
    header = np.zeros(_HEADER_WORDS, np.int64)
    header[: len(parts)] = _HEADER_WORDS + np.cumsum([0, *(part.size for part in parts)])[:-1]
    # Rounded up: 0 would be to wait for ever.
    header[PlanWord.WAIT_LIMIT] = ceil(wait_limit * 1e3)
    words = np.concatenate([header, *parts])
    if words.max() > np.iinfo(np.int32).max:
        raise PlanError(
            f"plan of {program.name}: an offset exceeds {ALIGNMENT * 2**31:,} bytes; "
            "split the model into smaller parts"
        )
    launches = segments * program.num_veus
    padded = np.pad(words, (0, -len(words) % launches)).astype(np.int32)
    return padded.reshape(segments, program.num_veus, -1)


def _starts(
    program: RProgram, segments: int, by_wave: bool
) -> tuple[npt.NDArray[np.int64], dict[tuple[int, int], int]]:
    """Where each vEU's rows of a segment begin and the last one's end; the row of every rTask."""
    order = sorted(
        (task.wave if by_wave else 0, veu, position) for veu, position, task in program.tasks()
    )
    places = {(veu, position): row for row, (_, veu, position) in enumerate(order)}
    counts = np.zeros((segments, program.num_veus), np.int64)
    for wave, veu, _ in order:
        counts[wave, veu] += 1
    ends = np.cumsum(counts).reshape(counts.shape)
    return np.concatenate([ends[:, :1] - counts[:, :1], ends], axis=1), places


def _waits(program: RProgram, veu: int, position: int, task: RTask, by_wave: bool) -> tuple:
    """What an rTask must wait for: nothing of an earlier launch, and none may need a later one."""
    if not by_wave:
        return task.waits
    before = [program.veus[veu][position - 1]] if position else []
    others = [program.veus[wait.veu][wait.count - 1] for wait in task.waits]
    if any(each.wave > task.wave for each in before) or any(
        each.wave >= task.wave for each in others
    ):
        raise PlanError(
            f"{program.name}: rTask {position} of vEU {veu} (wave {task.wave}) needs one of its "
            'own or a later wave on another vEU; this policy needs form="program"'
        )
    return ()


def _operands(program: RProgram, layout: BaseLayout) -> tuple[list[tuple[int, int]], list[int]]:
    """The pointers of all operators, and where those of each begin."""
    arena_start = counter_bytes(program)
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
