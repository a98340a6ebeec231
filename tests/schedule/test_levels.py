from __future__ import annotations

from collections import defaultdict

import pytest
from graphs import costs, graph, graphs
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule import plan_memory, synchronise, wavefront
from tvm_rammer.schedule.interplay import area, fastest_time
from tvm_rammer.schedule.wavefront import balanced_levels

ONE = [(1, 1.0)]


def recurrent(steps):
    """Input products, all ready at once, and a chain in which each step adds the next one."""
    products = [([], [(4, 1.0)])] * steps
    cells = [([step, steps + step - 1] if step else [0], [(1, 4.0)]) for step in range(steps)]
    return graph(*products, *cells)


def test_input_products_wait_for_their_time_step():
    """The first wave keeps what two vEUs need; each of the others goes just before its use."""
    levels = balanced_levels(recurrent(6), 2, costs())
    assert levels[6:] == [1, 2, 3, 4, 5, 6]
    assert levels[:6] == [0, 0, 2, 3, 4, 5]


def test_later_products_make_the_arena_small():
    """Without balancing the results of all steps are alive at once, 64 of 256 bytes.

    (With barriers: without them nothing holds the vEU back that runs the products.)
    """
    made = recurrent(64)
    program = plan_memory(synchronise(made, wavefront(made, 2, costs(), barrier=True)))
    assert program.arena_bytes <= 8 * 256


def test_a_wave_that_is_not_over_full_keeps_its_operators():
    """Two operators of one tile are just enough for two vEUs."""
    made = graph(([], ONE), ([], ONE), ([0], ONE), ([2], ONE), ([1, 3], ONE))
    assert balanced_levels(made, 2, costs()) == list(made.levels)


def test_whole_chains_move():
    made = graph(*[([], ONE)] * 3, ([0], ONE), ([1], ONE), ([4], ONE), ([5], ONE), ([6, 3, 2], ONE))
    assert made.levels == (0, 0, 0, 1, 1, 2, 3, 4)
    assert balanced_levels(made, 1, costs()) == [2, 0, 3, 3, 1, 2, 3, 4]


@given(graphs(), st.integers(1, 16))
def test_levels_follow_the_graph_and_over_full_waves_stay_full(made, num_veus):
    levels = balanced_levels(made, num_veus, costs())
    loads, before, longest = (defaultdict(float) for _ in range(3))
    for number, operator in enumerate(made.operators):
        kernel, soonest = operator.candidates[0], made.levels[number]
        loads[levels[number]] += area(kernel)
        before[soonest] += area(kernel)
        longest[soonest] = max(longest[soonest], fastest_time(kernel, num_veus, costs()))
        assert levels[number] >= soonest
        assert all(levels[p] < levels[number] for p in made.predecessors[number])
    for level, load in before.items():
        full = min(load, num_veus * longest[level])
        assert loads[level] >= full or loads[level] == pytest.approx(full)
