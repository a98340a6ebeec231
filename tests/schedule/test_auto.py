"""The selector above the policies: what it tries, measures, keeps and says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from graphs import costs, device, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.rprogram import verify
from tvm_rammer.schedule import POLICIES, Placed, Placement, Policy, auto, plan, simulate
from tvm_rammer.schedule.policies import finish

#: Operators of one tile: one after the other they leave a vEU idle.
WIDE = graph(*(([], [(1, 10.0)]) for _ in range(8)))
CHAIN = graph(([], [(4, 10.0)]), ([0], [(4, 10.0)]), ([1], [(4, 10.0)]))


def choose(made, measure=None, stored=None, veus=2, by_wave=False):
    return auto(made, veus, costs(), POLICIES, measure, stored, by_wave)


def clock(**ratios: float):
    """Times plans on paper: seconds by name, 1 for all others; remembers who was timed."""

    def measure(plans):
        measure.names = [plan.name for plan in plans]
        return [[ratios.get(plan.name, 1.0)] * 9 for plan in plans]

    measure.names = []
    return measure


def test_without_a_device_the_simulation_decides():
    chosen, decision = choose(WIDE)
    assert decision.how == "simulated"
    assert chosen.predicted == min(contender.predicted for contender in decision.contenders)
    assert decision.reason == f"{chosen.name} promises 0.51 of sequential"


def test_sequential_wins_ties():
    chosen, decision = choose(CHAIN)
    assert chosen.name == "sequential"
    assert decision.reason == ("no policy promises more than 1% over sequential (the best: 0.0%)")


def test_nothing_is_measured_if_nothing_promises_a_gain():
    measure = clock()
    _, decision = choose(CHAIN, measure)
    assert measure.names == []
    assert decision.how == "simulated"


def test_the_best_are_measured_against_both_baselines():
    measure = clock()
    _, decision = choose(WIDE, measure)
    assert measure.names[:2] == ["sequential", "per-op"]
    assert 1 <= len(measure.names[2:]) <= 3
    assert decision.how == "measured"
    measured = {c.name for c in decision.contenders if c.measured is not None}
    assert measured == set(measure.names)


def test_equal_plans_are_measured_once():
    measure = clock()
    choose(graph(([], [(1, 10.0)]), ([], [(1, 10.0)])), measure)
    assert len(measure.names) == 3


def test_the_fastest_wins():
    best = choose(WIDE)[0].name
    chosen, decision = choose(WIDE, clock(**{best: 0.8}))
    assert (chosen.name, decision.chosen) == (best, best)
    assert decision.reason == (
        f"{best} took 0.80 of the time of sequential (95 %: 0.80 to 0.80, 9 rounds)"
    )


def test_a_plan_that_only_promised_to_be_faster_loses():
    best = choose(WIDE)[0].name
    chosen, decision = choose(WIDE, clock(**{best: 1.5}))
    assert chosen.name == "sequential"
    assert decision.reason == "no plan was faster than sequential in 9 rounds"
    assert decision.settled


def test_per_op_may_win():
    chosen, _ = choose(WIDE, clock(**{"per-op": 0.5}))
    assert (chosen.name, chosen.by_wave) == ("per-op", True)
    assert verify(finish(chosen.program)) is None


def test_a_gain_within_noise_is_none_and_leaves_a_doubt():
    def noisy(plans):
        times = [[1.0] * 9 for _ in plans]
        times[-1] = [0.5, 2.0] * 4 + [0.5]
        return times

    chosen, decision = choose(WIDE, noisy)
    assert chosen.name == "sequential"
    assert not decision.settled
    last = clock()
    choose(WIDE, last)
    assert decision.reason == (
        f"no plan was faster than sequential beyond noise in 9 rounds, but {last.names[-1]} may "
        "be faster by 50%: build again on an idle machine"
    )


def test_a_plan_that_was_given_up_loses():
    """Of its rounds there are fewer, however fast it was in some."""

    def raced(plans):
        return [[1.0] * 7, *([0.5, 1.1] for _ in plans[1:])]

    chosen, decision = choose(WIDE, raced)
    assert chosen.name == "sequential"
    assert {c.rounds for c in decision.contenders if c.measured is not None} == {2, 7}


def test_a_stored_decision_needs_no_measuring():
    measure = clock(**{choose(WIDE)[0].name: 0.8})
    first, decision = choose(WIDE, measure)
    again = clock()
    chosen, found = choose(WIDE, again, decision)
    assert again.names == []
    assert chosen.program == first.program
    assert found == replace(decision, how="stored", seconds=0.0)


def test_a_stored_decision_for_an_unknown_policy_is_made_anew():
    _, decision = choose(WIDE, clock())
    measure = clock()
    choose(WIDE, measure, replace(decision, chosen="best"))
    assert measure.names


def test_a_stored_per_op_comes_back():
    _, decision = choose(WIDE, clock(**{"per-op": 0.5}))
    chosen, _ = choose(WIDE, None, decision)
    assert (chosen.name, chosen.by_wave) == ("per-op", True)


def test_with_a_launch_for_each_wave_sequential_is_per_op():
    measure = clock()
    chosen, decision = choose(WIDE, measure, by_wave=True)
    assert "per-op" not in [contender.name for contender in decision.contenders]
    assert chosen.by_wave
    assert measure.names[0] == "sequential"


def test_large_graphs_are_not_searched():
    made = graph(*(([], [(1, 1.0)]) for _ in range(2001)))
    _, decision = choose(made)
    assert decision.left_out == (
        ("ios", "its search is for graphs of up to 2,000 operators, this one has 2,001"),
    )


def test_many_operators_for_many_veus_are_not_followed_from_cache_to_cache():
    made = graph(*(([], [(1, 1.0)]) for _ in range(1001)))
    assert not POLICIES["locality"].limit(made, 1498)
    assert POLICIES["locality"].limit(made, 1499) == (
        "it looks at every vEU for every operator, up to 1,500,000 times, these would be 1,500,499"
    )


def levels(count):
    """Three operators on each, which read the results of the level before.

    Each can be one tile or nine, which three of them prefer on four vEUs or more.
    """
    choice = [(1, 10.0), (9, 1.2)]
    before = [([3 * level, 3 * level + 1, 3 * level + 2], choice) for level in range(count - 1)]
    return graph(*([([], choice)] * 3), *(operator for operator in before for _ in range(3)))


def asked_by_name(num_veus, baseline, count=12):
    """How often ``auto`` asks two policies, which place levels as ``wavefront`` does.

    Whoever is refined is asked with all candidates, and with the first alone.
    """
    made = levels(count)
    asked = []

    def policy(name):
        def place(given_graph, count, given_costs):
            asked.append(name)
            found = POLICIES["wavefront"].place(given_graph, count, given_costs)
            return replace(found, policy=name)

        return Policy(name, place, "asks")

    known = {"sequential": baseline, "one": policy("one"), "other": policy("other")}
    auto(made, num_veus, costs(), known)
    return Counter(asked)


@pytest.mark.parametrize("num_veus", [4, 64])
def test_where_refining_gains_nothing_others_are_left_alone_on_few_veus(num_veus):
    asked = asked_by_name(num_veus, POLICIES["sequential"])
    assert asked == {"one": 2, "other": 1 if num_veus == 4 else 2}
    assert asked_by_name(num_veus, POLICIES["sequential"], 10) == {"one": 2, "other": 2}


def test_where_refining_the_baseline_gains_much_it_may_for_others():
    def place(made, num_veus, given_costs):
        """All on one vEU, as long as there are finer candidates to run there."""
        if len(made.operators[0].candidates) == 1:
            return POLICIES["sequential"].place(made, num_veus, given_costs)
        mine = tuple(Placed(number, 1, 0, 9, number) for number in range(len(made.operators)))
        return Placement("sequential", (mine, *((),) * (num_veus - 1)))

    baseline = Policy("sequential", place, "all on one vEU")
    assert asked_by_name(4, baseline) == {"one": 2, "other": 2}


@pytest.mark.parametrize(("behind", "calls"), [(False, 3), (True, 1)])
def test_who_is_far_behind_is_not_refined(behind, calls):
    """Nor measured; it would place the graph with fewer candidates too, and for fewer vEUs."""
    made = levels(12)
    asked = []

    def place(given_graph, num_veus, given_costs):
        asked.append(given_graph)
        found = POLICIES["wavefront"].place(given_graph, 1 if behind else num_veus, given_costs)
        return replace(found, veus=(*found.veus, *((),) * (num_veus - len(found.veus))))

    own = Policy("own", place, "counts")
    measure = clock()
    known = {"sequential": POLICIES["sequential"], "own": own}
    _, decision = auto(made, 4, costs(), known, measure)
    assert len(asked) == calls
    assert "own" in {contender.name for contender in decision.contenders}
    assert ("own" in measure.names) == (not behind)


@settings(max_examples=50)
@given(graphs(max_operators=30), st.integers(1, 8))
def test_the_choice_is_no_slower_on_paper_than_sequential(made, num_veus):
    chosen = simulate(plan(made, device(num_veus), "auto"), costs()).makespan
    sequential = simulate(plan(made, device(num_veus), "sequential"), costs()).makespan
    assert chosen <= sequential * (1 + 1e-9)


@pytest.mark.parametrize("veus", [1, 3])
def test_no_operators_make_an_empty_program(veus):
    empty = replace(WIDE, operators=(), buffers=())
    assert plan(empty, device(veus)).num_tasks == 0
