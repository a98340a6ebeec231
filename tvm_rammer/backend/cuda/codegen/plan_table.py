"""The table of a plan: an rProgram as the int32 tensor that resident blocks walk.

The generated code holds every distinct rTask body once and a dispatcher; everything else about a
plan is in this table. Another plan for the same bodies is another table.

Its shape is (segments, vEUs, words): what the host must know, which cannot read it, is how many
launches there are of how many blocks. Read from start to end it holds, in int32 words::

    header     2 words, see PlanWord
    starts, rows, waits, operands    see plan_rows

Starts, and what a row says of its waits and operands, are words of the table; they are even, as two
words are fetched together. In place of its vEU, which a block knows, a row says where its operands
end.

The arena tensor begins with a counter for every vEU.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tvm_rammer.backend.cuda.devices import SECTOR_BYTES
from tvm_rammer.backend.plan_rows import (
    OPERAND_WORDS,
    ROW_WORDS,
    WAIT_WORDS,
    BaseLayout,
    Row,
    as_words,
    count_segments,
    plan_rows,
    wait_milliseconds,
)
from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import RProgram, aligned

#: Bytes from one counter to the next: a sector of the second-level cache each.
COUNTER_BYTES = SECTOR_BYTES
#: Words of the header: an even number.
HEADER_WORDS = 2
#: Of a row: where its operands end.
LAST_OPERAND = Row.VEU


class PlanWord(IntEnum):
    """Words of the header."""

    #: Milliseconds that a wait may take; 0 waits for ever.
    WAIT_LIMIT = 0
    #: Where in the arena tensor every row's two stamps are to be written, as a multiple of
    #: `ALIGNMENT`; 0 for none.
    STAMPS = 1


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
    header = np.zeros(HEADER_WORDS, np.int64)
    header[PlanWord.WAIT_LIMIT] = wait_milliseconds(wait_limit)
    starts = np.zeros(found.starts.size + found.starts.size % 2, np.int64)
    first_row = HEADER_WORDS + starts.size
    starts[: found.starts.size] = first_row + ROW_WORDS * found.starts.ravel()
    rows, first_wait = found.rows, first_row + found.rows.size
    rows[:, [Row.FIRST_WAIT, Row.LAST_WAIT]] *= WAIT_WORDS
    rows[:, [Row.FIRST_WAIT, Row.LAST_WAIT]] += first_wait
    rows[:, Row.OPERANDS] *= OPERAND_WORDS
    rows[:, Row.OPERANDS] += first_wait + found.waits.size
    counts = {kernel_ids[kernel.name]: len(kernel.modes) for kernel in program.kernels}
    of_row = np.array([counts[kernel] for kernel in rows[:, Row.KERNEL].tolist()], np.int64)
    rows[:, LAST_OPERAND] = rows[:, Row.OPERANDS] + OPERAND_WORDS * of_row
    parts = [header, starts, rows, found.waits, found.operands]
    words = as_words(program, [part.ravel() for part in parts])
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
