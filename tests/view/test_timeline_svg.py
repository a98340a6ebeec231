"""A static picture: well-formed, small, alone."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from timelines import random_plan, simulated, two_branches

from tvm_rammer.schedule import Timeline
from tvm_rammer.view import FAMILIES, timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(program, timelines, title="", **options):
    return ElementTree.fromstring(timeline_svg(program, timelines, title, **options))


def test_has_a_bar_for_each_rtask_in_the_colour_of_its_family():
    program = two_branches()
    root = drawn(program, [simulated(program)])
    colours = {family.colour: family.name for family in FAMILIES}
    bars = {colours[p.get("fill")]: p.get("d").count("z") for p in root.iter(f"{SVG}path")}
    assert bars == {"convolution": 1, "matmul": 1, "elementwise": 2}


def test_stacks_timelines_on_one_axis():
    program = two_branches()
    slow = Timeline(
        tuple(s._replace(start=2 * s.start, stop=2 * s.stop) for s in simulated(program).spans),
        "measured",
        2,
    )
    root = drawn(program, [simulated(program), slow], "both")
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[:2] == ["both", "wavefront, simulated, 74% busy"]
    assert {"8.1 \u00b5s", "16.2 \u00b5s", "wavefront, measured, 74% busy"} <= set(texts)
    ends = [float(e.get("x1")) for e in root.iter(f"{SVG}line") if e.get("class") == "rammer-end"]
    assert ends[1] - 58 == pytest.approx(2 * (ends[0] - 58), abs=0.2)


@pytest.mark.parametrize(
    "title", ["a < b & c", "</svg><script>alert(1)</script>", "\0\udc80 \u00e9"]
)
def test_a_title_cannot_break_out(title):
    program = two_branches()
    svg = timeline_svg(program, [simulated(program)], title)
    assert svg.isascii() and "<script" not in svg
    shown = title.replace("\0", " ").replace("\udc80", " ")
    assert ElementTree.fromstring(svg).find(f"{SVG}title").text == shown


def test_is_small_even_for_a_large_plan():
    small, large = (random_plan(np.random.default_rng(1), 4, n) for n in (40, 600))
    assert len(timeline_svg(small, [simulated(small)])) < 20_000
    assert large.num_tasks > 1500
    assert len(timeline_svg(large, [simulated(large)])) < 100_000


def test_loads_nothing_and_is_the_same_every_time():
    program = two_branches()
    svg = timeline_svg(program, [simulated(program)], "t")
    assert svg == timeline_svg(program, [simulated(program)], "t")
    assert svg.count("http") == 1 and "url(" not in svg and "href" not in svg


def test_of_a_run_without_spans():
    assert drawn(two_branches(), [Timeline((), "measured", 2)]).find(f"{SVG}path") is None
