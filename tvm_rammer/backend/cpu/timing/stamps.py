"""Profile a run: the generated code writes down when each rTask starts and stops.

Every kernel can do so; a word of the instruction table asks for it, and the arena tensor grows by
the stamps. They are readings of the CPU's own counter, which the clock's readings before and after
the launches turn into seconds.
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.backend.cpu.codegen.instruction_table import FIRST_STAMP, Header
from tvm_rammer.backend.plan_rows import row_numbers
from tvm_rammer.rprogram import ALIGNMENT, RProgram, aligned
from tvm_rammer.schedule.timeline import Span, Timeline


def table(plain: np.ndarray, arena_bytes: int) -> np.ndarray:
    """The same plan, written down as it runs.

    Parameters
    ----------
    plain : ndarray
        An instruction table.
    arena_bytes : int
        Of the arena tensor without stamps.
    """
    stamped = plain.copy()
    stamped[Header.STAMPS] = aligned(arena_bytes) // ALIGNMENT
    return stamped


def arena_bytes(program: RProgram, arena_bytes: int) -> int:
    """Bytes of the arena tensor with stamps."""
    return aligned(arena_bytes) + 8 * (FIRST_STAMP + 2 * program.num_tasks)


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
        Time 0 is just before the first launch.
    """
    stamps = arena[aligned(arena_bytes) :].view(np.int64)
    before, started, after, ended = map(int, stamps[:FIRST_STAMP])
    seconds = (ended - started) * 1e-9 / max(1, after - before)
    rows = stamps[FIRST_STAMP:].reshape(-1, 2)
    spans = []
    by_wave = int(table[Header.NUM_SEGMENTS]) > 1
    for (veu, position), row in row_numbers(program, by_wave).items():
        start, stop = ((int(ticks) - before) * seconds for ticks in rows[row])
        spans.append(Span(veu, position, program.veus[veu][position].operator, start, stop))
    return Timeline(tuple(spans), "measured", program.num_veus)
