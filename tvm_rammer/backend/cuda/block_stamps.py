"""Profile a run on a GPU: blocks write down when each rTask starts and stops.

Every kernel can do so; a word of the table asks for it, and the arena tensor grows by the stamps.
They are the device's ``globaltimer``, nanoseconds that all its processors agree on.
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.backend.cuda.codegen.plan_table import PlanWord
from tvm_rammer.backend.plan_rows import row_numbers
from tvm_rammer.rprogram import ALIGNMENT, RProgram, aligned
from tvm_rammer.schedule.timeline import Span, Timeline

_STAMP_BYTES = 8


def table(plain: np.ndarray, arena_bytes: int) -> np.ndarray:
    """The same plan, written down as it runs.

    Parameters
    ----------
    plain : ndarray
        A table of (segments, vEUs, words), int32.
    arena_bytes : int
        Of the arena tensor without stamps.
    """
    stamped = plain.copy()
    stamped.reshape(-1)[PlanWord.STAMPS] = aligned(arena_bytes) // ALIGNMENT
    return stamped


def arena_bytes(program: RProgram, arena_bytes: int) -> int:
    """Bytes of the arena tensor with stamps."""
    return aligned(arena_bytes) + 2 * _STAMP_BYTES * program.num_tasks


def timeline(program: RProgram, table: np.ndarray, arena: np.ndarray, arena_bytes: int) -> Timeline:
    """The timeline of the run that left its stamps in an arena.

    Parameters
    ----------
    program : RProgram
    table : ndarray
        With or without stamps.
    arena : ndarray
        One-dimensional, uint8, after a run with stamps.
    arena_bytes : int
        Of the arena tensor without stamps.

    Returns
    -------
    Timeline
        Time 0 is when the first rTask starts: the device does not know when it was asked.
    """
    stamps = arena[aligned(arena_bytes) :].view(np.int64).reshape(-1, 2)
    seconds = (stamps - stamps.min()) * 1e-9
    by_wave = table.shape[0] > 1
    spans = tuple(
        Span(veu, position, program.veus[veu][position].operator, *map(float, seconds[row]))
        for (veu, position), row in row_numbers(program, by_wave).items()
    )
    return Timeline(spans, "measured", program.num_veus)
