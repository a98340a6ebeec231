"""The instruction table: an rProgram as the int32 tensor that the generated code walks.

The generated code holds every distinct rTask body once and a dispatcher; everything else about a
plan is in this table. Another plan for the same bodies is another table.

ArgumentLayout (int32 words)::

    header     16 words, see Header
    starts     segments x (vEUs + 1): row where each vEU's part of a segment begins
    spans      segments + 1: where each segment begins in ``order``
    order      one word per row: all rows in a linear extension of happens-before
    rows       8 words per rTask, see Row; grouped by segment, then by vEU
    waits      2 words per wait: (vEU, count)
    operands   2 words per pointer: (base * 64 + offset % 64, offset // 64)

A *segment* is what one launch runs: the whole program, or one wavefront.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import ceil

import numpy as np

from tvm_rammer.backend.protocol import WAIT_LIMIT
from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import ALIGNMENT, Buffer, RProgram, aligned
from tvm_rammer.rprogram.happens_before import linear_extension
from tvm_rammer.rprogram.rows import root_of, rows_of

#: Words per rTask.
ROW_WORDS = 8
#: Words of the table's header.
HEADER_WORDS = 16
#: Bytes between two counters: a cache line each, so that vEUs do not disturb each other.
COUNTER_BYTES = 64
#: Stamps before those of the rows: the counter and the clock before and after the launches.
FIRST_STAMP = 4
#: Pointers that every kernel has before its inputs: the arena and the constants.
FIRST_INPUT_BASE = 2


class Header(IntEnum):
    """Words of the header."""

    NUM_VEUS = 0
    NUM_SEGMENTS = 1
    STARTS = 2
    SPANS = 3
    ORDER = 4
    ROWS = 5
    WAITS = 6
    OPERANDS = 7
    WAIT_LIMIT = 8
    STAMPS = 9


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
class ArgumentLayout:
    """Where a region's kernel finds things besides the table.

    ``num_inputs`` and ``num_outputs`` are tensors of the kernel's signature. The arena tensor has a
    head of its own, which is no part of the table: one counter per vEU, the abort flag, then the
    base pointers.
    """

    num_inputs: int
    num_outputs: int

    @classmethod
    def of(cls, signature: RegionSignature) -> ArgumentLayout:
        """The layout of a region's kernel."""
        return cls(len(signature.inputs), len(signature.outputs))

    @property
    def num_bases(self) -> int:
        return FIRST_INPUT_BASE + self.num_inputs + self.num_outputs

    def base(self, buffer: Buffer) -> int:
        """Which base pointer a buffer's offset counts from."""
        if buffer.space == "arena":
            return 0
        if buffer.space == "constant":
            return 1
        if buffer.space == "input":
            return FIRST_INPUT_BASE + buffer.index
        return FIRST_INPUT_BASE + self.num_inputs + buffer.index


def abort_offset(num_veus: int) -> int:
    """Byte of the abort flag in the arena tensor."""
    return num_veus * COUNTER_BYTES


def bases_offset(num_veus: int) -> int:
    """Byte where the base pointers begin in the arena tensor."""
    return abort_offset(num_veus) + COUNTER_BYTES


def header_bytes(program: RProgram, layout: ArgumentLayout) -> int:
    """Bytes of the arena tensor before the arena proper."""
    return aligned(bases_offset(program.num_veus) + 8 * layout.num_bases)


def arena_tensor_bytes(program: RProgram, layout: ArgumentLayout) -> int:
    """Bytes of the tensor that a kernel takes as its arena."""
    return header_bytes(program, layout) + aligned(program.arena_bytes)


def instruction_table(
    program: RProgram,
    layout: ArgumentLayout,
    kernel_ids: Mapping[str, int],
    by_wave: bool = False,
    wait_limit: float = WAIT_LIMIT,
) -> np.ndarray:
    """Encode a verified program.

    Parameters
    ----------
    program : RProgram
        With arena offsets.
    layout : ArgumentLayout
        Of the region's kernel.
    kernel_ids : mapping of str to int
        The dispatcher's number of every rKernel body.
    by_wave : bool
        One segment per wavefront instead of one for all.
    wait_limit : float
        Seconds after which a wait gives the run up; 0 waits for ever.

    Returns
    -------
    numpy.ndarray
        One-dimensional, int32.
    """
    segments = max(1, program.num_waves) if by_wave else 1
    if by_wave:
        _check_waves(program)
    row_of = row_numbers(program, by_wave)
    starts = _starts(program, segments, by_wave)
    order: list[list[int]] = [[] for _ in range(segments)]
    for veu, position in linear_extension(program):
        task = program.veus[veu][position]
        order[task.wave if by_wave else 0].append(row_of[veu, position])

    rows, waits, operands = _rows(program, layout, kernel_ids, row_of)
    spans = np.cumsum([0, *map(len, order)])
    flat_order = np.array([row for part in order for row in part], np.int64)
    parts = [starts.ravel(), spans, flat_order, rows.ravel(), waits.ravel(), operands.ravel()]
    offsets = HEADER_WORDS + np.cumsum([0, *(part.size for part in parts)])
    header = np.zeros(HEADER_WORDS, np.int64)
    header[Header.NUM_VEUS] = program.num_veus
    header[Header.NUM_SEGMENTS] = segments
    # Rounded up: 0 would be to wait for ever.
    header[Header.WAIT_LIMIT] = ceil(wait_limit * 1e3)
    header[Header.STARTS : Header.OPERANDS + 1] = offsets[:-1]
    table = np.concatenate([header, *parts])
    if table.size and table.max() > np.iinfo(np.int32).max:
        raise PlanError(
            f"plan of {program.name}: an offset exceeds {ALIGNMENT * 2**31:,} bytes; "
            "split the model into smaller parts"
        )
    return table.astype(np.int32)


def row_numbers(program: RProgram, by_wave: bool = False) -> dict[tuple[int, int], int]:
    """The row of every rTask by its vEU and position: by segment, then by vEU, then in order."""
    places = sorted(
        (task.wave if by_wave else 0, veu, position) for veu, position, task in program.tasks()
    )
    return {(veu, position): row for row, (_, veu, position) in enumerate(places)}


def _starts(program: RProgram, segments: int, by_wave: bool) -> np.ndarray:
    """Where each vEU's rows of a segment begin, and where the last one's end."""
    counts = np.zeros((segments, program.num_veus), np.int64)
    for veu, _, task in program.tasks():
        counts[task.wave if by_wave else 0, veu] += 1
    ends = np.cumsum(counts).reshape(counts.shape)
    return np.concatenate([ends[:, :1] - counts[:, :1], ends], axis=1)


def _check_waves(program: RProgram) -> None:
    """With a launch per wave, a wave must need nothing of a later one."""
    for veu, position, task in program.tasks():
        before = [program.veus[veu][position - 1]] if position else []
        before += [program.veus[wait.veu][wait.count - 1] for wait in task.waits]
        if any(other.wave > task.wave for other in before):
            raise PlanError(
                f"{program.name}: rTask {position} of vEU {veu} (wave {task.wave}) comes after one "
                'of a later wave; this policy needs form="program"'
            )


def _rows(
    program: RProgram,
    layout: ArgumentLayout,
    kernel_ids: Mapping[str, int],
    row_of: Mapping[tuple[int, int], int],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    arena_start = header_bytes(program, layout)
    operands: list[tuple[int, int]] = []
    operands_of: list[int] = []
    for operator in program.operators:
        operands_of.append(len(operands))
        for number in operator.arguments:
            whole = program.buffers[root_of(program.buffers, number)]
            offset = rows_of(program.buffers, number).start
            offset += arena_start if whole.space == "arena" else 0
            lines, rest = divmod(offset, ALIGNMENT)
            operands.append((layout.base(whole) * ALIGNMENT + rest, lines))
    signalled = {(wait.veu, wait.count) for _, _, task in program.tasks() for wait in task.waits}
    rows = np.zeros((program.num_tasks, ROW_WORDS), np.int64)
    waits: list[tuple[int, int]] = []
    for veu, position, task in program.tasks():
        row = rows[row_of[veu, position]]
        row[Row.KERNEL] = kernel_ids[program.kernel_of(task.operator).name]
        row[Row.START], row[Row.STOP] = task.start, task.stop
        row[Row.OPERANDS] = operands_of[task.operator]
        row[Row.FIRST_WAIT] = len(waits)
        waits.extend((wait.veu, wait.count) for wait in task.waits)
        row[Row.LAST_WAIT] = len(waits)
        row[Row.SIGNAL] = position + 1 if (veu, position + 1) in signalled else 0
        row[Row.VEU] = veu
    return rows, _pairs(waits), _pairs(operands)


def _pairs(items: list[tuple[int, int]]) -> np.ndarray:
    return np.array(items, np.int64).reshape(-1, 2)
