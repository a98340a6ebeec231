"""A plan as text: a summary, the kernels, and the rTasks wave by wave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import random_program, two_branches

from tvm_rammer.rprogram import RProgram, format_program

PLAN = two_branches()

WHOLE = """\
rProgram two_branches, policy by hand
  3 operators, 4 rTasks, 2 vEUs, 2 waves, 2 waits
  arena 256 B, constants 128 B, 1 input, 1 output

  kernel  used  tiles  a tile  origin   tiling
  square    1x      4    1 us  generic  1x8 outputs
  scale     1x      2  2.5 us  generic  2x8 outputs
  add       1x      4    1 us  generic  1x8 outputs

wave 0
  vEU 0  #0  square  [0, 4)
  vEU 1  #0  scale   [0, 2)

wave 1
  vEU 0  #1  add     [0, 2)  after vEU 1 #0 scale
  vEU 1  #1  add     [2, 4)  after vEU 0 #0 square
"""


def test_whole_plan():
    assert format_program(PLAN) == WHOLE
    assert format_program(PLAN, limit=4) == WHOLE
    assert format_program(PLAN, limit=None) == WHOLE


def test_long_plan_is_elided_in_the_middle():
    """A heading is repeated behind the gap, so that each rTask stands under its wave."""
    text = format_program(PLAN, limit=2)
    assert text[text.index("\nwave") :] == (
        "\nwave 0\n  vEU 0  #0  square  [0, 4)\n"
        "\n... 2 rTasks of waves 0 to 1 not shown ...\n"
        "\nwave 1\n  vEU 1  #1  add     [2, 4)  after vEU 0 #0 square\n"
    )


def test_no_task_shown():
    assert format_program(PLAN, limit=0).endswith("\n... 4 rTasks of waves 0 to 1 not shown ...\n")


def test_empty_plan():
    assert format_program(RProgram("empty", "none", (), (), (), ((),))) == (
        "rProgram empty, policy none\n"
        "  0 operators, 0 rTasks, 1 vEU, 0 waves, 0 waits\n"
        "  arena 0 B, constants 0 B, 0 inputs, 0 outputs\n"
        "\n"
        "  kernel  used  tiles  a tile  origin  tiling\n"
    )


@pytest.mark.parametrize(
    ("time", "nbytes", "time_text", "bytes_text"),
    [
        (0.0, 1023, "0 ns", "1023 B"),
        (0.5e-6, 1024, "500 ns", "1.0 KiB"),
        (12.34e-6, 1536, "12.3 us", "1.5 KiB"),
        (0.9996e-3, 5 * 2**20, "1 ms", "5.0 MiB"),
        (1.5, 3 * 2**40, "1.5 s", "3072.0 GiB"),
    ],
)
def test_units(time, nbytes, time_text, bytes_text):
    kernels = (replace(PLAN.kernels[0], tile_time=time), *PLAN.kernels[1:])
    text = format_program(replace(PLAN, kernels=kernels, arena_bytes=nbytes))
    assert f"  arena {bytes_text}, " in text
    assert f"  {time_text}  generic" in text


@given(st.integers(0, 10**6), st.integers(0, 30))
@settings(max_examples=30, deadline=None)
def test_limit_bounds_the_rows(seed, limit):
    program = random_program(seed, operators=8)
    rows = [line for line in format_program(program, limit).splitlines() if " #" in line]
    assert len([row for row in rows if row.startswith("  vEU")]) == min(limit, program.num_tasks)
