"""Edited plan files: each is refused with a reason, or is safe by definition and can be shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm_rammer.commands.plan_file import read_plan
from tvm_rammer.errors import RammerError
from tvm_rammer.rprogram import RProgram, format_program
from tvm_rammer.runtime.description import simulated
from tvm_rammer.runtime.report import make_report
from tvm_rammer.view import chrome_trace, timeline_html, timeline_svg, timeline_text

#: The definitions take space and time that grow with these.
_MOST_TILES, _MOST_ROWS = 1 << 16, 1 << 16

Oracle = Callable[[RProgram], tuple[bool, str]]


def judge(document: Any, path: Path, is_safe: Oracle) -> str:
    """``"refused"`` or ``"safe"``; any error but a refusal is one of the reader.

    Parameters
    ----------
    document : object
        Of JSON, as ``tvm-rammer show --json`` writes it.
    path : Path
        Where the file may be.
    is_safe : callable
        Decides from the definitions whether a plan is safe.

    Raises
    ------
    AssertionError
        If an unsafe plan is accepted.
    """
    path.write_text(json.dumps(document))
    try:
        description = read_plan(path)
    except RammerError as error:
        assert str(path) in str(error) and "\n" not in str(error), f"a poor error: {error}"
        return "refused"
    if description is None:
        return "refused"
    for program in description.programs.values():
        if _is_small(program):
            safe, reason = is_safe(program)
            assert safe, f"an unsafe plan is accepted: {reason}"
    str(make_report(description))
    plans = simulated(description)
    for program, timeline in plans:
        format_program(program)
        timeline_text(program, timeline, 80)
        chrome_trace(program, timeline)
    if plans:
        programs, timelines = [plan for plan, _ in plans], [times for _, times in plans]
        timeline_html(programs, timelines, path.name)
        timeline_svg(programs, timelines, path.name)
    return "safe"


def _is_small(program: RProgram) -> bool:
    tiles = sum(program.kernel_of(op).num_tiles for op in range(len(program.operators)))
    parts = [buffer for buffer in program.buffers if buffer.space == "part"]
    rows = sum(program.buffers[part.index].nbytes // part.pitch for part in parts)
    return tiles <= _MOST_TILES and rows <= _MOST_ROWS
