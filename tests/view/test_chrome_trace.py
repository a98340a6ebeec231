"""A trace follows the trace event format and holds every rTask and every wait."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from timelines import random_plan, simulated, two_branches

from tvm_rammer.view import chrome_trace, critical_path

REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
}


@pytest.fixture(params=range(4))
def program(request):
    return random_plan(np.random.default_rng(request.param)) if request.param else two_branches()


def test_events_have_the_fields_of_their_phase(program):
    events = chrome_trace(program, simulated(program))["traceEvents"]
    assert all(set(event) - {"ph"} == REQUIRED[event["ph"]] for event in events)
    assert {(e["pid"], type(e["tid"])) for e in events} == {(1, int)}
    assert all(e["ts"] >= 0 for e in events if "ts" in e)
    assert all(e["dur"] >= 0 for e in events if "dur" in e)


def test_every_rtask_is_a_slice_of_its_veu(program):
    trace = chrome_trace(program, simulated(program))
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert Counter(e["tid"] for e in slices) == Counter(
        {veu: len(tasks) for veu, tasks in enumerate(program.veus) if tasks}
    )
    places = {(e["tid"], e["args"]["position"]) for e in slices if e["args"]["critical"]}
    assert places == critical_path(program, simulated(program))


def test_slices_of_a_veu_do_not_overlap(program):
    trace = chrome_trace(program, simulated(program))
    ends: dict[int, float] = {}
    for event in (e for e in trace["traceEvents"] if e["ph"] == "X"):
        assert event["ts"] >= ends.get(event["tid"], 0.0)
        ends[event["tid"]] = round(event["ts"] + event["dur"], 3)


def test_every_wait_is_a_flow_between_its_slices(program):
    trace = chrome_trace(program, simulated(program))["traceEvents"]
    slices = {(e["tid"], e["args"]["position"]): e for e in trace if e["ph"] == "X"}
    flows: dict[int, dict] = {}
    for event in trace:
        if event["ph"] in "sf":
            flows.setdefault(event["id"], {})[event["ph"]] = event
    waits = [
        (wait.veu, wait.count - 1, veu, position)
        for veu, position, task in sorted(program.tasks(), key=lambda t: t[:2])
        for wait in task.waits
    ]
    assert len(flows) == len(waits)
    for flow, (other, awaited, veu, position) in zip(flows.values(), waits, strict=True):
        start, end = flow["s"], flow["f"]
        source, sink = slices[other, awaited], slices[veu, position]
        assert (start["tid"], end["tid"], end["bp"]) == (other, veu, "e")
        assert source["ts"] <= start["ts"] <= source["ts"] + source["dur"] + 1e-3
        assert end["ts"] == sink["ts"]


def test_threads_are_named_and_sorted():
    program = two_branches()
    trace = chrome_trace(program, simulated(program))
    names = [(e["name"], e["tid"], e["args"]) for e in trace["traceEvents"] if e["ph"] == "M"]
    assert names == [
        ("process_name", 0, {"name": "two_branches (wavefront, simulated)"}),
        ("thread_name", 0, {"name": "vEU 0"}),
        ("thread_sort_index", 0, {"sort_index": 0}),
        ("thread_name", 1, {"name": "vEU 1"}),
        ("thread_sort_index", 1, {"sort_index": 1}),
    ]


def test_a_slice_says_what_ran():
    program = two_branches()
    trace = chrome_trace(program, simulated(program))
    first = next(e for e in trace["traceEvents"] if e["ph"] == "X")
    assert first == {
        "ph": "X",
        "pid": 1,
        "tid": 0,
        "name": "conv",
        "cat": "convolution",
        "ts": 1.0,
        "dur": 4.0,
        "args": {
            "kernel": "fused_conv2d_relu",
            "origin": "convolution",
            "tiling": "1x8",
            "tiles": "[0, 4) of 4",
            "position": 0,
            "wave": 0,
            "critical": False,
        },
    }
    assert trace["otherData"]["makespan_us"] == 8.1


def test_is_json_and_the_same_every_time(program):
    timeline = simulated(program)
    once = json.dumps(chrome_trace(program, timeline), allow_nan=False)
    assert once == json.dumps(chrome_trace(program, timeline))
