"""Profile a run: the generated code writes down when each rTask starts and stops.

Every kernel can do so; a word of the instruction table asks for it, and the arena tensor grows by
the stamps. They are readings of the CPU's own counter, which the clock's readings before and after
the launches turn into seconds.
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.backend.cpu.codegen.table import FIRST_STAMP, Header
from tvm_rammer.backend.plan_rows import row_numbers
from tvm_rammer.rprogram import ALIGNMENT, RProgram, aligned
from tvm_rammer.schedule.timeline import Span, Timeline


def stamped_table(table: np.ndarray, arena_bytes: int) -> np.ndarray:
    """The same plan, written down as it runs.

    Parameters
    ----------
    table : ndarray
        An instruction table.
    arena_bytes : int
        Of the arena tensor without stamps.
    """
    stamped = table.copy()
    stamped[Header.STAMPS] = aligned(arena_bytes) // ALIGNMENT
    return stamped


def stamped_arena_bytes(program: RProgram, arena_bytes: int) -> int:
    """Bytes of the arena tensor with stamps."""
    return aligned(arena_bytes) + 8 * (FIRST_STAMP + 2 * program.num_tasks)


def read_stamps(
    program: RProgram, arena: np.ndarray, arena_bytes: int, by_wave: bool = False
) -> Timeline:
    """The timeline of the run that left its stamps in an arena.

    Parameters
    ----------
    program : RProgram
    arena : ndarray
        One-dimensional, uint8, after a run with :func:`stamped_table`.
    arena_bytes : int
        Of the arena tensor without stamps.
    by_wave : bool
        Whether every wavefront is a segment of the table.

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
    for (veu, position), row in row_numbers(program, by_wave).items():
        start, stop = ((int(ticks) - before) * seconds for ticks in rows[row])
        spans.append(Span(veu, position, program.veus[veu][position].operator, start, stop))
    return Timeline(tuple(spans), "measured", program.num_veus)
