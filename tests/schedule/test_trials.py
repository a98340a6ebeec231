"""Plans of a graph are simulated once, and none of them is shorter than what they are held to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import US, costs, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.schedule import POLICIES, Placed, Placement, Policy, simulate, synchronise, trials
from tvm_rammer.schedule.trials import Trials

#: Transfers take time, and waits of many for many.
COSTS = replace(costs(), transfer=0.1 * US, transfer_byte=1e-10, wait=0.05 * US)


@settings(max_examples=80, deadline=None)
@given(graphs(25), st.sampled_from(sorted(POLICIES)), st.integers(1, 16), st.booleans())
def test_they_are_as_long_as_simulated_alone(made, policy, num_veus, gathering):
    given_costs = COSTS if gathering else replace(COSTS, wait=0.0)
    placement = POLICIES[policy].place(made, num_veus, given_costs)
    tried = Trials(made, num_veus, given_costs)
    alone = simulate(synchronise(made, placement, given_costs), given_costs)
    plain = simulate(synchronise(made, placement), given_costs)
    assert tried.seconds(placement) == alone.makespan
    assert tried.plain(placement)[1] == plain
    assert tried.plain_seconds(placement) == plain.makespan
    assert tried.least <= min(alone.makespan, plain.makespan) * (1 + 1e-9)


def test_a_plan_is_simulated_once(monkeypatch):
    asked = []

    def counted(program, given_costs, demands):
        asked.append(program)
        return simulate(program, given_costs, demands)

    monkeypatch.setattr(trials, "simulate", counted)
    made = graph(([], [(2, 1.0)]), ([0], [(2, 1.0)]))
    veus = ((Placed(0, 0, 0, 2, 0), Placed(1, 0, 0, 2, 1)), ())
    tried = Trials(made, 2, replace(COSTS, wait=0.0))
    for _ in range(2):
        tried.seconds(Placement("one", veus))
        tried.plain(Placement("one", veus))
        tried.plain_seconds(Placement("one", veus))
    assert len(asked) == 1
    tried.seconds(Placement("another", veus[::-1]))
    assert len(asked) == 2


@pytest.mark.parametrize(("tiles", "asked"), [(64, 1), (3, 2)])
def test_a_plan_that_no_other_can_beat_has_no_rival(tiles, asked):
    """On two vEUs 64 tiles take as long as all work does; three leave one vEU idle."""
    seen = []

    def place(made, num_veus, given_costs):
        seen.append(made)
        return POLICIES["sequential"].place(made, num_veus, given_costs)

    made = graph(([], [(tiles, 9.0), (2 * tiles, 4.8)]))
    Policy("counted", place, "counted")(made, 2, COSTS)
    assert len(seen) == asked
