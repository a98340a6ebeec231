"""The instruction table: an rProgram as the int32 tensor that the generated code walks.

The generated code holds every distinct rTask body once and a dispatcher; everything else about a
plan is in this table. Another plan for the same bodies is another table.

In int32 words::

    header     16 words, see Header
    starts     segments x (vEUs + 1): row where each vEU's part of a segment begins
    spans      segments + 1: where each segment begins in ``order``
    order      one word per row: all rows in a linear extension of happens-before
    rows       8 words per rTask, see plan_rows.Row; grouped by segment, then by vEU
    waits      2 words per wait: (vEU, count)
    operands   2 words per pointer: (base * 64 + offset % 64, offset // 64)

A *segment* is what one launch runs: the whole program, or one wavefront
(:mod:`~tvm_rammer.backend.plan_rows`). The arena tensor has a head of its own, which is no part of
the table: one counter per vEU, the abort flag, then the base pointers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np

from tvm_rammer.backend.plan_rows import (
    BaseLayout,
    as_words,
    count_segments,
    plan_rows,
    row_numbers,
    wait_milliseconds,
)
from tvm_rammer.backend.protocol import WAIT_LIMIT
from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import RProgram, aligned
from tvm_rammer.rprogram.happens_before import linear_extension

#: Words of the table's header.
HEADER_WORDS = 16
#: Bytes between two counters: a cache line each, so that vEUs do not disturb each other.
COUNTER_BYTES = 64
#: Stamps before those of the rows: the counter and the clock before and after the launches.
FIRST_STAMP = 4


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


def abort_offset(num_veus: int) -> int:
    """Byte of the abort flag in the arena tensor."""
    return num_veus * COUNTER_BYTES


def bases_offset(num_veus: int) -> int:
    """Byte where the base pointers begin in the arena tensor."""
    return abort_offset(num_veus) + COUNTER_BYTES


def header_bytes(program: RProgram, layout: BaseLayout) -> int:
    """Bytes of the arena tensor before the arena proper."""
    return aligned(bases_offset(program.num_veus) + 8 * layout.num_bases)


def arena_tensor_bytes(program: RProgram, layout: BaseLayout) -> int:
    """Bytes of the tensor that a kernel takes as its arena."""
    return header_bytes(program, layout) + aligned(program.arena_bytes)


def instruction_table(
    program: RProgram,
    layout: BaseLayout,
    kernel_ids: Mapping[str, int],
    by_wave: bool = False,
    wait_limit: float = WAIT_LIMIT,
) -> np.ndarray:
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

    Returns
    -------
    numpy.ndarray
        One-dimensional, int32.
    """
    if by_wave:
        _check_waves(program)
    segments = count_segments(program, by_wave)
    row_of = row_numbers(program, by_wave)
    order: list[list[int]] = [[] for _ in range(segments)]
    for veu, position in linear_extension(program):
        task = program.veus[veu][position]
        order[task.wave if by_wave else 0].append(row_of[veu, position])

    found = plan_rows(program, layout, kernel_ids, header_bytes(program, layout), by_wave)
    spans = np.cumsum([0, *map(len, order)])
    flat_order = np.array([row for part in order for row in part], np.int64)
    rows = [part.ravel() for part in (found.rows, found.waits, found.operands)]
    parts = [found.starts.ravel(), spans, flat_order, *rows]
    offsets = HEADER_WORDS + np.cumsum([0, *(part.size for part in parts)])
    header = np.zeros(HEADER_WORDS, np.int64)
    header[Header.NUM_VEUS] = program.num_veus
    header[Header.NUM_SEGMENTS] = segments
    header[Header.WAIT_LIMIT] = wait_milliseconds(wait_limit)
    header[Header.STARTS : Header.OPERANDS + 1] = offsets[:-1]
    return as_words(program, [header, *parts])


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
