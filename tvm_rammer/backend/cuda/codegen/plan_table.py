"""The table of a plan: an rProgram as the int32 tensor that resident blocks walk.

The generated code holds every distinct rTask body once and a dispatcher; everything else about a
plan is in this table. Another plan for the same bodies is another table.

Its shape is (segments, vEUs, words): what the host must know, which cannot read it, is how many
launches there are of how many blocks. Read from start to end it holds, in int32 words::

    header     8 words, see PlanWord
    starts, rows, waits, operands    see plan_rows

The arena tensor begins with a counter for every vEU.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tvm_rammer.backend.cuda.devices import SECTOR_BYTES
from tvm_rammer.backend.plan_rows import (
    BaseLayout,
    as_words,
    count_segments,
    plan_rows,
    wait_milliseconds,
)
from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import RProgram, aligned

#: Bytes from one counter to the next: a sector of the second-level cache each.
COUNTER_BYTES = SECTOR_BYTES
_HEADER_WORDS = 8


class PlanWord(IntEnum):
    """Words of the header."""

    STARTS = 0
    ROWS = 1
    WAITS = 2
    OPERANDS = 3
    WAIT_LIMIT = 4


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
    if by_wave:
        _check_waves(program)
    start = counter_bytes(program)
    # A launch waits for all of the one before.
    found = plan_rows(program, layout, kernel_ids, start, by_wave, with_waits=not by_wave)
    parts = [part.ravel() for part in (found.starts, found.rows, found.waits, found.operands)]
    header = np.zeros(_HEADER_WORDS, np.int64)
    header[: len(parts)] = _HEADER_WORDS + np.cumsum([0, *(part.size for part in parts)])[:-1]
    header[PlanWord.WAIT_LIMIT] = wait_milliseconds(wait_limit)
    words = as_words(program, [header, *parts])
    segments = count_segments(program, by_wave)
    padded = np.pad(words, (0, -len(words) % (segments * program.num_veus)))
    return padded.reshape(segments, program.num_veus, -1)


def _check_waves(program: RProgram) -> None:
    """With a launch per wave, nothing may need an rTask of its own or a later one."""
    for veu, position, task in program.tasks():
        before = [program.veus[veu][position - 1]] if position else []
        awaited = [program.veus[wait.veu][wait.count - 1] for wait in task.waits]
        # What gathers waits has them itself.
        others = [each for each in awaited if not each.gathers]
        if any(each.wave > task.wave for each in before) or any(
            each.wave >= task.wave for each in others
        ):
            raise PlanError(
                f"{program.name}: rTask {position} of vEU {veu} (wave {task.wave}) needs one of "
                'its own or a later wave on another vEU; this policy needs form="program"'
            )
