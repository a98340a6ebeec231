"""The page: alone, safe, complete, the same every time."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from timelines import random_plan, simulated, two_branches

from tvm_rammer.schedule import Timeline
from tvm_rammer.schedule.critical_path import critical_chain
from tvm_rammer.view import FAMILIES, timeline_html

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "{{data}} {{script}} \\g<0> \\u003c",
    "\u2028\u2029\u00e9\udc80\"'&<>\0",
]


class Page(HTMLParser):
    """What a browser sees: the elements with their attributes, and the text of each script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.inside: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if self.inside:
            self.texts.setdefault(self.inside[-1], []).append(data)

    @property
    def data(self):
        return json.loads(self.texts["script"][0])


def page(program=None, timelines=None, title="title") -> Page:
    program = program or two_branches()
    return Page(timeline_html(program, timelines or [simulated(program)], title))


def rows(flat: list[int], width: int) -> list[tuple[int, ...]]:
    return list(zip(*(flat[i::width] for i in range(width)), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_holds_the_whole_program_and_timeline(seed):
    program = random_plan(np.random.default_rng(seed))
    timeline = simulated(program)
    data = page(program, [timeline]).data
    (stored,), (panel,) = data["programs"], data["panels"]
    assert [tuple(k) for k in stored["kernels"]] == [
        (k.name, k.origin, k.tiling, k.num_tiles) for k in program.kernels
    ]
    assert [tuple(op[:2]) for op in stored["operators"]] == [
        (op.name, op.kernel) for op in program.operators
    ]
    assert [rows(flat, 4) for flat in stored["tasks"]] == [
        [(t.operator, t.start, t.stop, t.wave) for t in tasks] for tasks in program.veus
    ]
    assert [rows(flat, 3) for flat in stored["waits"]] == [
        [(i, w.veu, w.count) for i, t in enumerate(tasks) for w in t.waits]
        for tasks in program.veus
    ]
    spans = {(s.veu, s.position): s for s in timeline.spans}
    for veu, flat in enumerate(panel["spans"]):
        for position, start, stop in rows(flat, 3):
            span = spans.pop((veu, position))
            assert (start, stop) == (round(span.start * 1e9), round(span.stop * 1e9))
    assert not spans
    assert rows(panel["critical"], 2) == critical_chain(program, timeline)


def test_two_timelines_of_one_program_share_it():
    program, other = two_branches(), replace(two_branches(), policy="sequential")
    timeline = simulated(program)
    data = page([other, program, program], [timeline] * 3).data
    assert [panel["program"] for panel in data["panels"]] == [0, 1, 1]
    assert [panel["label"] for panel in data["panels"]] == [
        "sequential, simulated",
        "wavefront, simulated",
        "wavefront, simulated",
    ]
    assert data["families"] == [[family.name, family.colour] for family in FAMILIES]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_can_break_out(name):
    """An operator's name and a title of any text leave the page's structure as it is."""
    plain, hostile = page(), page(two_branches(name), title=name)
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert hostile.data["programs"][0]["operators"][1][0] == name
    assert hostile.texts["script"][1:] == plain.texts["script"][1:]
    html = timeline_html(two_branches(name), [simulated(two_branches())], name)
    assert html.isascii()


def test_a_title_is_shown_as_it_is():
    shown = page(title="a <b> & 'c' \u00e9 {{data}}")
    assert "".join(shown.texts["h1"]) == "a <b> & 'c' \u00e9 {{data}}"


def test_loads_nothing():
    seen = page()
    assert all(not {"src", "href", "srcset"} & set(attributes) for _, attributes in seen.elements)
    html = timeline_html(two_branches(), [simulated(two_branches())], "t")
    for word in ("http://", "https://", "@import", "url(", "fetch(", "import(", "XMLHttpRequest"):
        assert word not in html
    (policy,) = [a["content"] for _, a in seen.elements if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_says_the_numbers_that_matter():
    program = two_branches()
    slow = Timeline(
        tuple(s._replace(start=2 * s.start, stop=2 * s.stop) for s in simulated(program).spans),
        "measured",
        2,
    )
    texts = page(program, [slow, simulated(program), slow]).texts
    assert texts["h2"] == ["wavefront, measured", "wavefront, simulated", "wavefront, measured"]
    shares = ["74%", "86%"]
    assert texts["b"] == [
        *("16.2 \u00b5s", *shares, "6 \u00b5s"),
        *("8.1 \u00b5s", *shares, "6 \u00b5s"),
        *("16.2 \u00b5s", *shares, "6 \u00b5s"),
    ]
    assert [t for t in texts["span"] if "first" in t or t == "makespan"] == [
        "makespan",
        "2.00x shorter than the first",
        "as long as the first",
    ]
    assert texts["p"][0] == "2 vEUs, 3 operators, 4 rTasks, 2 waves, 2 waits, arena 256 B"


def test_is_the_same_every_time():
    program = random_plan(np.random.default_rng(7))
    timeline = simulated(program)
    assert timeline_html(program, [timeline], "t") == timeline_html(program, [timeline], "t")


def test_a_run_without_spans_is_a_page_too():
    data = page(two_branches(), [Timeline((), "measured", 2)]).data
    assert data["panels"][0] == {
        "label": "wavefront, measured",
        "program": 0,
        "makespan": 0,
        "spans": [[], []],
        "critical": [],
    }


def test_elements_that_the_script_looks_up_exist():
    seen = page()
    ids = {attributes["id"] for _, attributes in seen.elements if "id" in attributes}
    script = seen.texts["script"][1]
    wanted = {part.split('"')[0] for part in script.split('getElementById("')[1:]}
    assert wanted == ids - {"sticky"}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_scripts_are_javascript(tmp_path):
    parts = sorted(files("tvm_rammer.view").joinpath("page").iterdir(), key=lambda p: p.name)
    for part in parts:
        if part.name.endswith(".js"):
            copy = tmp_path / part.name
            copy.write_text(part.read_text())
            subprocess.run(["node", "--check", copy], check=True, timeout=30)
