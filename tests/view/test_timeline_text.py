"""A timeline in a terminal: one row for each vEU, as wide as it may be, all ASCII."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from timelines import random_plan, simulated, two_branches

from tvm_rammer.schedule import Timeline
from tvm_rammer.view import timeline_text


def test_of_two_branches():
    program = two_branches()
    assert timeline_text(program, simulated(program), width=60).plain == (
        "two_branches, wavefront, simulated: 8.1 us, vEUs busy 74% of the time\n"
        "       |0                           |5 us\n"
        "vEU 0  ......CCCCCCCCCCCCCCCCCCCCCCC............EEEEEE   62%\n"
        "vEU 1  ......MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMEEEEE.   86%\n"
        "C convolution   M matmul   E elementwise   . idle"
    )


@pytest.mark.parametrize("width", [40, 80, 133])
def test_rows_are_as_wide_as_asked(width):
    program = random_plan(np.random.default_rng(0), veus=12)
    lines = timeline_text(program, simulated(program), width).plain.splitlines()
    assert [len(line) for line in lines[2:-1]] == [width] * 12
    assert len(lines[1]) <= width
    assert lines[2].startswith("vEU 0   ") and lines[13].startswith("vEU 11  ")


def test_is_as_wide_as_the_terminal_by_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    program = two_branches()
    assert len(timeline_text(program, simulated(program)).plain.splitlines()[2]) == 72


def test_a_narrow_terminal_still_gets_a_few_columns():
    program = two_branches()
    lines = timeline_text(program, simulated(program), width=5).plain.splitlines()
    assert lines[2] == "vEU 0  ..CCCCCCCC....EE   62%"


def test_is_ascii_and_coloured():
    program = two_branches()
    text = timeline_text(program, simulated(program), 60)
    assert text.plain.isascii()
    assert {"blue", "yellow", "green"} <= {str(span.style) for span in text.spans}


def test_of_a_run_without_spans_is_idle():
    program = replace(two_branches(), name="nothing")
    lines = timeline_text(program, Timeline((), "measured", 2), 40).plain.splitlines()
    assert lines[0] == "nothing, wavefront, measured: 0 ns, vEUs busy 0% of the time"
    assert lines[2:] == [f"vEU {veu}  {'.' * 27}    0%" for veu in range(2)] + [". idle"]
