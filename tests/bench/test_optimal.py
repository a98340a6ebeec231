"""No schedule beats the optimum that branch and bound finds, and some reach it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.optimal import best_makespan, small_graph
from fuzzing.random_graphs import SHAPES
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tvm_rammer.machine.vdevice import VDevice
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.schedule import POLICIES, CostModel, bounds, plan, simulate, synchronise

US = 1e-6
COSTS = CostModel(0.1 * US, 0.3 * US, 1 * US, 1e18, 1e18, 0.0)
MOVING = replace(COSTS, l2_bytes=1 << 30, transfer=0.1 * US, transfer_byte=25e-12)


def graph(*operators):
    """Operators as (predecessors, tiles, microseconds per tile)."""
    buffers = [Buffer("input", (16,), "float32", "input")]
    made = []
    for number, (before, tiles, time) in enumerate(operators):
        buffers.append(Buffer(f"result{number}", (16,), "float32", "arena"))
        reads = [p + 1 for p in before] or [0]
        kernel = RKernel(f"body{number}", tiles, (*["read"] * len(reads), "write"), time * US)
        made.append(Operator(f"operator{number}", (kernel,), (*reads, number + 1)))
    return OperatorGraph("test", tuple(buffers), tuple(made))


@pytest.mark.parametrize(
    ("operators", "microseconds"),
    [
        # 3 + 3 beside 2 + 2 + 2: longest first would end after 7.
        ([([], 1, t) for t in (3.0, 3.0, 2.0, 2.0, 2.0)], 6.0),
        # Both vEUs share the first; one of them waits for the other.
        ([([], 2, 4.0), ([0], 1, 1.0)], 5.1),
        # A short one is not worth the wait.
        ([([], 1, 4.0), ([0], 2, 0.05)], 4.1),
        # The chain first, although the other one is longer.
        ([([], 1, 2.0), ([0], 1, 4.0), ([], 1, 3.0), ([], 1, 3.0)], 6.0),
    ],
)
def test_small_optima(operators, microseconds):
    optimum = best_makespan(graph(*operators), 2, COSTS)
    assert optimum.proved
    assert optimum.makespan == pytest.approx((1 + microseconds) * US)


@pytest.mark.parametrize(
    ("kib", "microseconds"),
    [
        # Half of the result arrives for the second vEU: 0.1 to see it, 0.1 and 0.2 to fetch it.
        (16, 2 + 0.1 + 0.1 + 8 * 1024 * 25e-6 + 2),
        # So much that the first vEU had better run both tiles, and all before.
        (512, 4 + 4),
    ],
)
def test_data_that_another_veu_wrote_takes_time(kib, microseconds):
    made = graph(([], 2, 2.0), ([0], 2, 2.0))
    buffers = tuple(replace(b, shape=(kib * 256,)) for b in made.buffers)
    optimum = best_makespan(replace(made, buffers=buffers), 2, MOVING)
    assert optimum.proved
    assert optimum.makespan == pytest.approx((1 + microseconds) * US)


some_graphs = given(
    st.integers(0, 999), st.sampled_from(SHAPES), st.integers(1, 5), st.sampled_from([1, 2, 3])
)


@settings(max_examples=20)
@some_graphs
def test_the_best_schedule_takes_as_long_as_its_simulation(seed, shape, operators, num_veus):
    """Transfers are counted as the simulator counts them."""
    made = small_graph(np.random.default_rng(seed), shape, operators)
    optimum = best_makespan(made, num_veus, MOVING, budget=500)
    assume(optimum.placement is not None)
    program = synchronise(made, optimum.placement)
    assert simulate(program, MOVING).makespan == pytest.approx(optimum.makespan, rel=1e-8)


@settings(max_examples=20)
@some_graphs
def test_no_policy_beats_the_optimum_and_no_bound_exceeds_it(seed, shape, operators, num_veus):
    made = small_graph(np.random.default_rng(seed), shape, operators)
    programs = [plan(made, VDevice("any", num_veus=num_veus), p, MOVING) for p in POLICIES]
    times = [simulate(program, MOVING).makespan for program in programs]
    # It does not know of the policies' plans.
    optimum = best_makespan(made, num_veus, MOVING, budget=5_000)
    assert optimum.least <= min(times) * (1 + 1e-9)
    assume(optimum.proved)
    assert optimum.makespan == optimum.least
    least = max(bounds(program).makespan for program in programs) + MOVING.launch
    assert optimum.makespan >= least * (1 - 1e-9)
    # What is a lower bound before anything is placed is one.
    cut = best_makespan(made, num_veus, MOVING, budget=1)
    assert cut.least <= optimum.makespan * (1 + 1e-9)


def test_a_search_that_is_cut_short_says_so():
    made = small_graph(np.random.default_rng(0), "wide", 12)
    optimum = best_makespan(made, 3, COSTS, budget=5)
    assert not optimum.proved


def test_one_veu_runs_everything_in_a_row():
    made = small_graph(np.random.default_rng(1), "mixed", 8)
    work = sum(o.candidates[0].num_tiles * o.candidates[0].tile_time for o in made.operators)
    assert best_makespan(made, 1, COSTS).makespan == pytest.approx(work + COSTS.launch)
