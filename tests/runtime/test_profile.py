"""A measured timeline: every rTask once, in order, and the run still right."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from close import assert_outputs_close
from small_models import Sorting

import tvm_rammer
from tvm_rammer.errors import InputError
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing import models
from tvm_rammer.testing.reference import random_inputs

LSTM = models.lstm(2, 2, 16)
INPUTS = random_inputs(LSTM)


@pytest.fixture(scope="module")
def library():
    return tvm_rammer.build(LSTM, policy="wavefront", num_veus=2)


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "wavefront"},
        {"policy": "sequential"},
        {"policy": "wavefront", "form": "wavefront"},
        {"policy": "wavefront", "num_veus": 1},
    ],
    ids=["program", "sequential", "by wave", "one vEU"],
)
def test_a_profile_shows_every_rtask_when_it_may_run(library, options):
    module = library.replan(**options).create()
    module.set_input(**INPUTS)
    profile = module.profile(runs=3)
    program, timeline = profile.program, profile.timeline
    times = {(span.veu, span.position): span for span in timeline.spans}
    assert sorted(times) == [(veu, position) for veu, position, _ in program.tasks()]
    for veu, position, task in program.tasks():
        span = times[veu, position]
        assert 0 <= span.start <= span.stop <= profile.seconds
        assert span.operator == task.operator
        if position and module.num_workers >= program.num_veus:
            assert times[veu, position - 1].stop <= span.start
        for wait in task.waits:
            assert times[wait.veu, wait.count - 1].stop <= span.start + 1e-6
    assert timeline.source == "measured"
    assert profile.overhead > -1


def test_a_profiled_run_is_an_ordinary_run(library):
    module = library.create()
    module.set_input(**INPUTS)
    module.run()
    before = module.get_output(0).numpy().copy()
    module.profile(runs=1)
    assert np.array_equal(module.get_output(0).numpy(), before)
    assert_outputs_close([before], run_onnxruntime(LSTM, INPUTS))


def test_it_says_what_measuring_cost(library):
    profile = library.create().profile(runs=1)
    profile = replace(profile, plain_seconds=50e-6, seconds=51e-6)
    assert profile.cost() == (
        "median run 50 us, with a stamp at both ends of every rTask 51 us (+2.0%)"
    )
    noisy = replace(profile, seconds=49e-6)
    assert noisy.cost() == (
        "median run 50 us, with a stamp at both ends of every rTask 49 us (less than the noise)"
    )
    assert repr(profile).startswith(
        "<tvm_rammer.runtime.profile.Profile: rammer_region0, wavefront; median run 50 us, "
    )


def test_a_notebook_shows_the_timeline(library):
    module = library.create()
    frame = module.profile(runs=1)._repr_html_()
    (page,) = re.findall(r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)">', frame)
    assert "measured" in unescape(page)
    assert module.profile(runs=1)._repr_svg_().startswith("<svg ")


@pytest.mark.parametrize("runs", [0, "3", 1.5])
def test_no_number_of_runs(library, runs):
    with pytest.raises(InputError) as few:
        library.create().profile(runs=runs)
    assert str(few.value) == f"runs is {runs!r}; it must be a whole number of at least 1"


def test_what_cannot_be_profiled(library):
    with pytest.raises(InputError) as parts:
        tvm_rammer.build(Sorting).create().profile()
    assert str(parts.value) == (
        "only a model that is one planned region can be profiled; "
        "`tvm-rammer explain` says what is left out of this one"
    )
