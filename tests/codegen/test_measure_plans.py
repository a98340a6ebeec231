"""Plans are timed in turns, through the kernel that will run them."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_rammer.codegen.measure_plans import measure_plans
from tvm_rammer.frontend import load_model
from tvm_rammer.testing.compiled_regions import Source
from tvm_rammer.testing.models.registry import get_model
from tvm_rammer.transform.co_schedule import signature_of


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
