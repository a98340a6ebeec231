"""Plans are timed in turns, through the kernel that will run them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from parts_of_results import module
from stress.compiled_regions import Source
from tvm import relax

from tvm_rammer.backend.cpu.timing import measure_kernels as kernels_module
from tvm_rammer.backend.cpu.timing import measure_plans as plans_module
from tvm_rammer.backend.cpu.timing.measure_plans import measure_plans
from tvm_rammer.frontend import load_model
from tvm_rammer.kernel.operands import operands_of
from tvm_rammer.region.compiler import signature_of
from tvm_rammer.rprogram import updated_in_place
from tvm_rammer.testing.models.zoo import get_model


@pytest.fixture(scope="module")
def source() -> Source:
    return Source.of_module(load_model(get_model("lstm_8x8x256").tiny()).module)


def test_every_plan_has_a_time_in_every_round(source):
    signature = signature_of(source.graph.graph)
    kernels = source.compiler.module((signature,))
    plans = [
        (source.plan("sequential", 2), False),
        (source.plan("sequential", 2), True),
        (source.plan("random1", 2), False),
    ]
    constants = source.graph.constants.copy()
    times = measure_plans(kernels, signature, source.ids, plans, constants)
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
    kernels = source.compiler.module((signature,))
    once = source.compile(program)
    waves = type(once)(source, program, signature, kernels[signature.name], True)
    for got, expected in zip(waves.run(inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_what_may_stay_where_it_is_does_while_it_is_timed():
    """Kernels and plans run as they will: nothing is copied onto itself."""
    shapes = ((1, 8, 1), (4, 1, 16), (4, 8, 16))

    def step(emit, places, new, old):
        left = emit(relax.op.where(relax.op.greater(places, relax.const(0.0)), new, old))
        return [left, emit(relax.op.sum(left, 1))]

    source = Source.of_module(module(step, *shapes))
    program = source.plan("sequential", 1)
    signature, calls = signature_of(source.graph.graph), []
    entries = {signature.name: lambda *arguments: calls.append(arguments)}
    constants = source.graph.constants
    (run,) = plans_module._bind(entries, signature, source.ids, [(program, False)], constants)
    run()
    *inputs, _, _, result, _, _ = calls[0]
    (place,) = updated_in_place(program).values()
    assert len(inputs) == 3 and result.same_as(inputs[place]) and result.shape == shapes[2]
    uses = operands_of(source.graph.graph).values()
    ((kernel, operands),) = [use for use in uses if use[0].in_place is not None]
    timed = kernels_module._program(signature, kernel, operands, 2, 4)
    for operator in timed.operators:
        first, second = (operator.arguments[pointer] for pointer in kernel.in_place)
        assert first == second
