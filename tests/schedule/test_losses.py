"""What a plan would gain without each cost, and whom that cost holds up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import US, costs, device, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.schedule import POLICIES, losses, plan, simulate
from tvm_rammer.schedule.losses import COSTS

#: Two operators of two tiles, the second of which reads all of the first one's result.
CHAIN = graph(([], [(2, 10.0)]), ([0], [(2, 10.0)]))


def lost(made, given, policy="sequential", veus=2):
    return {x.cost: x for x in losses(plan(made, device(veus), policy, given), given)}


def test_a_wait_holds_up_who_waits():
    found = lost(CHAIN, costs())
    assert list(found) == ["launch", "waits"]
    assert found["launch"].seconds == pytest.approx(1 * US)
    assert found["launch"].operators == ()
    assert found["waits"].seconds == pytest.approx(0.1 * US)
    ((name, seconds),) = found["waits"].operators
    assert (name, seconds) == ("op1", pytest.approx(0.2 * US))


def test_a_transfer_makes_longer_what_reads():
    found = lost(CHAIN, replace(costs(), transfer=1 * US, transfer_byte=US / 256))
    # Each vEU fetches half of the result from the other.
    assert found["transfers"].seconds == pytest.approx(1.5 * US)
    ((name, seconds),) = found["transfers"].operators
    assert (name, seconds) == ("op1", pytest.approx(3 * US))


def test_a_row_costs_each_rtask_something():
    found = lost(CHAIN, replace(costs(), row=0.5 * US))
    assert found["rows"].seconds == pytest.approx(1 * US)
    assert dict(found["rows"].operators) == pytest.approx({"op0": 1 * US, "op1": 1 * US})


def test_weights_come_from_memory():
    kernel = RKernel("body", 1, ("read", "read", "write"), 1 * US)
    buffers = (
        Buffer("input", (4,), "float32", "input"),
        Buffer("weight", (1000,), "float32", "constant"),
        Buffer("result", (4,), "float32", "output"),
    )
    operators = (Operator("op0", (kernel,), (0, 1, 2)),)
    made = OperatorGraph("test", buffers, operators, constant_bytes=4000)
    slow = replace(costs(), l3_bytes=1, memory_bandwidth=4e8, core_memory_bandwidth=4e8)
    found = lost(made, slow)
    assert list(found) == ["memory", "launch"]
    assert found["memory"].seconds == pytest.approx(9 * US, rel=1e-3)
    assert found["memory"].operators[0][0] == "op0"


@settings(max_examples=50)
@given(graphs(20), st.sampled_from(sorted(POLICIES)), st.integers(1, 4))
def test_losses_are_what_a_simulation_without_the_cost_says(made, policy, num_veus):
    given_costs = replace(costs(), transfer=0.1 * US, transfer_byte=1e-10)
    program = plan(made, device(num_veus), policy, given_costs)
    whole = simulate(program, given_costs).makespan
    found = losses(program, given_costs)
    assert [x.seconds for x in found] == sorted((x.seconds for x in found), reverse=True)
    for loss in found:
        without = simulate(program, COSTS[loss.cost](given_costs)).makespan
        assert loss.seconds == whole - without > 0
        assert all(seconds > 0 for _, seconds in loss.operators)
