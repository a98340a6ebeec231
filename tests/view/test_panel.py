"""Timelines must be of the program that they are drawn with."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest
from timelines import shifted, simulated, two_branches

from tvm_rammer.errors import InputError
from tvm_rammer.schedule import Timeline
from tvm_rammer.view.panel import make_panels

PROGRAM = two_branches()
TIMELINE = simulated(PROGRAM)


def refusal(program, timelines) -> str:
    with pytest.raises(InputError) as error:
        make_panels(program, timelines)
    return str(error.value)


def test_one_program_serves_all_timelines():
    panels = make_panels(PROGRAM, [TIMELINE, replace(TIMELINE, source="measured")])
    assert [panel.label for panel in panels] == ["wavefront, simulated", "wavefront, measured"]
    assert all(panel.program is PROGRAM for panel in panels)


def test_programs_that_differ_are_named():
    panels = make_panels([PROGRAM, replace(PROGRAM, name="other")], [TIMELINE, TIMELINE])
    assert [panel.label for panel in panels] == [
        "two_branches, wavefront, simulated",
        "other, wavefront, simulated",
    ]


def test_spans_are_ordered_by_time():
    backwards = replace(TIMELINE, spans=TIMELINE.spans[::-1])
    assert make_panels(PROGRAM, [backwards])[0].veus == make_panels(PROGRAM, [TIMELINE])[0].veus


def test_a_timeline_without_spans_is_fine():
    assert make_panels(PROGRAM, [Timeline((), "measured", 2)])[0].veus == ((), ())


def test_no_timeline():
    assert refusal(PROGRAM, []) == "there is no timeline to draw; pass at least one"


def test_counts_that_differ():
    assert refusal([PROGRAM], [TIMELINE, TIMELINE]) == (
        "1 programs for 2 timelines; pass one program for all, or one for each"
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"veu": 2}, "operator 0 as rTask #0 of vEU 2"),
        ({"veu": -1}, "operator 0 as rTask #0 of vEU -1"),
        ({"position": 2}, "operator 0 as rTask #2 of vEU 0"),
        ({"operator": 1}, "operator 1 as rTask #0 of vEU 0"),
    ],
)
def test_a_timeline_of_another_program(changes, what):
    assert refusal(PROGRAM, [shifted(TIMELINE, **changes)]) == (
        f"the simulated timeline runs {what}, which is not so in program 'two_branches'; "
        "pass the program it is of"
    )


@pytest.mark.parametrize(("start", "stop"), [(2.0, 1.0), (-1.0, 1.0), (0.0, nan)])
def test_impossible_times(start, stop):
    assert refusal(PROGRAM, [shifted(TIMELINE, start=start, stop=stop)]) == (
        f"the simulated timeline runs rTask #0 of vEU 0 from {start} to {stop} s; "
        "times must be finite, from 0 on, and end no sooner than they start"
    )


def test_an_rtask_that_runs_twice():
    twice = replace(TIMELINE, spans=(*TIMELINE.spans, TIMELINE.spans[0]))
    assert refusal(PROGRAM, [twice]) == (
        "the simulated timeline runs rTask #0 of vEU 0 twice; pass the spans of one run"
    )
