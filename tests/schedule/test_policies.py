from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import pytest
from fuzzing.random_graphs import SHAPES, random_graph
from graphs import costs, device, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic import interpret_symbolic

from tvm_rammer.errors import InputError
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.rprogram.interpret import legal_interleavings
from tvm_rammer.schedule import (
    POLICIES,
    CostModel,
    bounds,
    plan,
    simulate,
)

CO_SCHEDULED = sorted(set(POLICIES) - {"sequential"})


def test_an_unknown_policy_is_refused_with_those_that_exist():
    with pytest.raises(InputError) as error:
        plan(graph(([], [(1, 1.0)])), device(2), "fastest")
    assert str(error.value) == (
        "there is no policy 'fastest'; "
        "choose one of 'auto', 'estf', 'ios', 'locality', 'sequential', 'wavefront'"
    )


def test_a_device_without_veus_is_refused():
    with pytest.raises(InputError) as error:
        plan(graph(([], [(1, 1.0)])), SimpleNamespace(num_veus=0))
    assert str(error.value) == "num_veus is 0; a plan needs at least one vEU"


def test_costs_come_from_the_device_unless_given():
    """With a barrier that costs nothing even a short operator takes both vEUs."""
    made = graph(([], [(2, 0.2)]))
    free = CostModel(point_to_point=0.0, barrier=0.0, launch=0.0)
    assert [len(tasks) for tasks in plan(made, device(2), "sequential").veus] == [1, 0]
    assert [len(tasks) for tasks in plan(made, device(2), "sequential", free).veus] == [1, 1]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_operators_make_an_empty_program(policy):
    program = plan(OperatorGraph("empty", (), ()), device(2), policy)
    assert (program.num_veus, program.num_tasks, program.num_waves) == (2, 0, 0)


@settings(max_examples=100)
@given(graphs(), st.integers(1, 16), st.sampled_from(sorted(POLICIES)))
def test_plans_are_verified_and_the_same_every_time(made, num_veus, policy):
    program = plan(made, device(num_veus), policy)
    assert program.policy == policy
    assert program.num_veus == num_veus
    assert program == plan(made, device(num_veus), policy)


@settings(max_examples=30)
@given(graphs(), st.integers(1, 8), st.sampled_from(sorted(POLICIES)), st.integers(0, 1000))
def test_every_read_sees_its_producer_in_any_interleaving(made, num_veus, policy, seed):
    program = plan(made, device(num_veus), policy)
    orders = islice(legal_interleavings(program, seed), 20)
    first = interpret_symbolic(program, next(orders))
    assert all(interpret_symbolic(program, order) == first for order in orders)


@pytest.mark.parametrize("num_veus", [2, 4, 8])
@pytest.mark.parametrize("shape", ["tree", "wide", "ladder", "mixed"])
def test_branches_side_by_side_beat_one_after_the_other(shape, num_veus):
    made = random_graph(1, shape, 200)
    span = {
        policy: simulate(plan(made, device(num_veus), policy), costs()).makespan
        for policy in POLICIES
    }
    assert all(span[policy] < span["sequential"] for policy in CO_SCHEDULED)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", CO_SCHEDULED)
def test_plans_use_what_the_graph_offers(policy, shape):
    """Within 1.35 of a bound that no schedule of these kernels can beat."""
    program = plan(random_graph(2, shape, 300), device(2), policy)
    assert simulate(program, costs()).makespan < 1.35 * bounds(program).makespan
