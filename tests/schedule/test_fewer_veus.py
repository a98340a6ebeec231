"""A plan may leave vEUs idle: where more of them only cost, and where a clock says so."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from graphs import US, costs, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.errors import PlanError
from tvm_rammer.machine.topology import PairCosts, Topology
from tvm_rammer.rprogram import verify
from tvm_rammer.schedule import POLICIES, Decision, Policy, auto
from tvm_rammer.schedule.arena_cap import policies_within
from tvm_rammer.schedule.fewer_veus import halvings, name_on_fewer, policy_and_veus
from tvm_rammer.schedule.policies import finish

NOTHING = PairCosts(0.0, 0.0, 0.0)
FAR = PairCosts(point_to_point=8 * US, transfer=8 * US, transfer_byte=1 * US / 64)
#: Two sockets of four vEUs each.
SOCKETS = (0, 0, 0, 0, 1, 1, 1, 1)
TWO_SOCKETS = replace(
    costs(),
    transfer=0.1 * US,
    topology=Topology(tuple(range(8)), SOCKETS, SOCKETS, NOTHING, FAR, FAR),
)
#: Each of these reads all of what the one before wrote: eight tiles, a little longer than a wait.
CHAIN = graph(([], [(8, 2.0)]), *(([number], [(8, 2.0)]) for number in range(11)), nbytes=1024)
#: Half of the vEUs take just a little longer for it.
LITTLE_TO_GAIN = graph(([], [(5, 1.0)]), *(([number], [(5, 1.0)]) for number in range(7)))


def clock(**ratios: float):
    """Times plans on paper: seconds by name, blanks as underscores, 1 for all others."""
    return lambda plans: [[ratios.get(plan.name.replace(" ", "_"), 1.0)] * 9 for plan in plans]


def test_halvings_end_at_one():
    assert [list(halvings(count)) for count in (1, 2, 12)] == [[], [1], [6, 3, 1]]


@pytest.mark.parametrize("count", [1, 2, 48, 2048])
def test_the_name_of_a_plan_says_how_many_run(count):
    assert policy_and_veus(name_on_fewer("my own", count)) == ("my own", count)
    assert policy_and_veus("sequential") == ("sequential", None)
    assert name_on_fewer("ios", 1) == "ios on 1 vEU"


def test_what_another_socket_would_only_slow_down_stays_on_one():
    chosen, decision = auto(CHAIN, 8, TWO_SOCKETS, POLICIES)
    assert policy_and_veus(chosen.name)[1] == 4
    assert decision.chosen == chosen.name
    assert decision.reason.startswith(f"{chosen.name} promises ")
    assert [bool(tasks) for tasks in chosen.program.veus] == [True] * 4 + [False] * 4
    assert verify(finish(chosen.program)) is None
    alone = auto(CHAIN, 4, TWO_SOCKETS, POLICIES)[0]
    assert chosen.predicted == pytest.approx(alone.predicted)


def test_what_gains_by_all_vEUs_has_them():
    wide = graph(*(([], [(1, 50.0)]) for _ in range(8)))
    _, decision = auto(wide, 8, TWO_SOCKETS, POLICIES)
    assert not any(policy_and_veus(contender.name)[1] for contender in decision.contenders)


def test_half_of_the_vEUs_that_are_hardly_slower_on_paper_may_be_faster_on_the_device():
    promised = auto(LITTLE_TO_GAIN, 4, costs(), POLICIES)[0].name
    name = f"{promised} on 2 vEUs"
    measure = clock(**{name.replace(" ", "_"): 0.7})
    chosen, decision = auto(LITTLE_TO_GAIN, 4, costs(), POLICIES, measure)
    by_name = {contender.name: contender for contender in decision.contenders}
    assert decision.how == "measured"
    assert by_name[chosen.name].predicted >= by_name[promised].predicted
    assert (chosen.name, decision.chosen) == (name, name)
    assert decision.reason.startswith(f"{name} took 0.70 of the time of sequential")
    assert Decision.from_dict(json.loads(json.dumps(asdict(decision)))) == decision
    again, stored = auto(LITTLE_TO_GAIN, 4, costs(), POLICIES, None, decision)
    assert again.program == chosen.program
    assert stored == replace(decision, how="stored", seconds=0.0)


def test_half_of_the_vEUs_that_are_no_faster_lose():
    chosen, decision = auto(LITTLE_TO_GAIN, 4, costs(), POLICIES, clock())
    assert chosen.name == "sequential"
    assert any(c.name.endswith("on 2 vEUs") for c in decision.contenders if c.measured)


def test_half_of_the_vEUs_are_not_measured_where_all_are_much_faster_or_few():
    even = graph(*(([], [(4, 10.0)]) for _ in range(8)))
    for made, num_veus in ((even, 4), (LITTLE_TO_GAIN, 3)):
        _, decision = auto(made, num_veus, costs(), POLICIES, clock())
        assert not any(policy_and_veus(contender.name)[1] for contender in decision.contenders)


def test_a_stored_plan_of_a_policy_that_is_gone_is_made_anew():
    own = Policy("own", POLICIES["sequential"].place, "as sequential")
    known = {**POLICIES, "own": own}
    _, decision = auto(CHAIN, 8, TWO_SOCKETS, known)
    gone = replace(decision, chosen="own on 4 vEUs")
    assert auto(CHAIN, 8, TWO_SOCKETS, known, None, gone)[1].how == "stored"
    assert auto(CHAIN, 8, TWO_SOCKETS, POLICIES, None, gone)[1].how == "simulated"


def test_plans_within_a_limit_of_memory_stay_as_they_are():
    try:
        fitting = policies_within(1 << 16, CHAIN, 8, TWO_SOCKETS, POLICIES)
    except PlanError:
        pytest.fail("the chain needs no more")
    _, decision = auto(CHAIN, 8, TWO_SOCKETS, fitting)
    assert {contender.name for contender in decision.contenders} <= {*POLICIES, "per-op"}


def test_operators_one_by_one_are_found_again_within_a_limit_of_memory():
    fitting = policies_within(1 << 16, CHAIN, 8, TWO_SOCKETS, POLICIES)
    _, decision = auto(CHAIN, 8, TWO_SOCKETS, POLICIES)
    one_by_one = replace(decision, chosen="per-op")
    assert auto(CHAIN, 8, TWO_SOCKETS, fitting, None, one_by_one)[1].how == "stored"
    on_four = replace(decision, chosen="sequential on 4 vEUs")
    assert auto(CHAIN, 8, TWO_SOCKETS, fitting, None, on_four)[1].how == "simulated"


@settings(max_examples=30)
@given(graphs(max_operators=20), st.sampled_from([2, 4, 6, 8]))
def test_twice_the_vEUs_are_no_slower_on_paper(made, num_veus):
    chosen, _ = auto(made, num_veus, TWO_SOCKETS, POLICIES)
    (half, *_) = halvings(num_veus)
    baseline = {"sequential": POLICIES["sequential"]}
    fewer, _ = auto(made, half, TWO_SOCKETS, baseline)
    assert chosen.predicted <= fewer.predicted * (1 + 0.02)
    assert verify(finish(chosen.program)) is None
