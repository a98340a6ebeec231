"""Plans are timed in turns, through the kernel that will run them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from stress.compiled_regions import Source

from tvm_rammer.backend.cpu.timing import measure_plans as plans_module
from tvm_rammer.backend.cpu.timing.measure_plans import measure_plans
from tvm_rammer.frontend import load_model
from tvm_rammer.region.planned import signature_of
from tvm_rammer.testing.models.zoo import get_model


@pytest.fixture(scope="module")
def source() -> Source:
    return Source.of_module(load_model(get_model("lstm_8x8x256").tiny()).module)


def test_every_plan_has_a_time_in_every_round(source):
    signature = signature_of(source.graph.graph)
    module = source.compiler.module((signature,))
    plans = [
        (source.plan("sequential", 2), False),
        (source.plan("sequential", 2), True),
        (source.plan("random1", 2), False),
    ]
    constants = source.graph.constants.copy()
    times = measure_plans(module, signature, source.ids, plans, constants)
    assert len(times) == 3
    assert len({len(mine) for mine in times}) == 1 and len(times[0]) >= 7
    assert all(0 < seconds < 10 for mine in times for seconds in mine)
    np.testing.assert_array_equal(constants, source.graph.constants)


def take_turns(monkeypatch, race: bool, *runs: list[float]) -> list[int]:
    """In how many rounds runs of these seconds, one after another, took part."""
    now = 0.0

    def run(seconds: Iterator[float]) -> None:
        nonlocal now
        now += next(seconds)

    monkeypatch.setattr(plans_module.time, "perf_counter", lambda: now)
    # The first time of a plan finds out how long it takes.
    calls = [partial(run, itertools.cycle(seconds)) for seconds in runs]
    times = plans_module._take_turns(calls, lambda: now, race)
    return [len(mine) for mine in times]


def test_a_slow_plan_that_cannot_win_is_given_up(monkeypatch):
    """Always faster; slower once, in the second round; always slower."""
    plans = [[0.5], [0.4], [0.5, 0.4, 0.6, 0.4, 0.4, 0.4, 0.4, 0.4], [0.6]]
    assert take_turns(monkeypatch, True, *plans) == [7, 7, 2, 1]
    assert take_turns(monkeypatch, False, *plans) == [7, 7, 7, 7]
    assert take_turns(monkeypatch, True, [0.5], [0.6]) == [1, 1]


def test_fast_plans_all_run_to_the_end(monkeypatch):
    assert take_turns(monkeypatch, True, [0.03], [0.04]) == [15, 15]


@pytest.mark.parametrize("policy", ["sequential", "wavefront", "estf"])
def test_a_launch_for_each_wave_computes_the_same(source, policy):
    """The kernel of a program walks a table of many segments as well as one of a single segment."""
    program = source.plan(policy, 2)
    inputs = source.inputs()
    want = source.compile(program).run(inputs)
    signature = signature_of(source.graph.graph)
    module = source.compiler.module((signature,))
    once = source.compile(program)
    waves = type(once)(source, program, signature, module[signature.name], True)
    for got, expected in zip(waves.run(inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected)
