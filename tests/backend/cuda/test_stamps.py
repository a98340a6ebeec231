"""Profiles of GPUs: every rTask once, in order, in every form; without races."""

from __future__ import annotations

import pytest
from emulated_cuda import looking_for_races, run_emulated

import tvm_rammer
from tvm_rammer.runtime.profile import Profile
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs


def profiled(form: str) -> Profile:
    model = get_model("lstm_8x8x256").tiny()
    target = {"kind": "cuda", "arch": "sm_90"}
    with looking_for_races():
        library = tvm_rammer.build(model, target, form=form, policy="wavefront", num_veus=4)
    module = library.create()
    module.set_input(**random_inputs(model))
    module.run()
    before = module.get_output(0).numpy().copy()
    profile = module.profile(runs=3)
    assert (module.get_output(0).numpy() == before).all()
    return profile


@pytest.mark.parametrize("form", ["program", "wavefront"])
def test_a_profile_shows_every_rtask_when_it_may_run(form):
    profile = run_emulated(profiled, form)
    program, timeline = profile.program, profile.timeline
    times = {(span.veu, span.position): span for span in timeline.spans}
    assert sorted(times) == [(veu, position) for veu, position, _ in program.tasks()]
    assert min(span.start for span in timeline.spans) == 0
    assert timeline.makespan <= profile.seconds
    for veu, position, task in program.tasks():
        span = times[veu, position]
        assert span.start <= span.stop
        assert span.operator == task.operator
        if position:
            assert times[veu, position - 1].stop <= span.start
        for wait in task.waits:
            assert times[wait.veu, wait.count - 1].stop <= span.start
    assert timeline.source == "measured"
