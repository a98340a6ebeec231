"""Plans within ``max_arena_bytes``."""

from __future__ import annotations

import pytest
from graphs import costs, device, graph, graphs
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.errors import PlanError
from tvm_rammer.schedule import POLICIES, Policy, choices, plan
from tvm_rammer.schedule.arena_cap import policies_within

#: Eight towers of two operators, whose results of 256 bytes are joined by the last operator.
TOWERS = graph(
    *([([], [(1, 10.0)]) for _ in range(8)]),
    *([([tower], [(1, 10.0)]) for tower in range(8)]),
    (list(range(8, 16)), [(1, 1.0)]),
)


@pytest.mark.parametrize("policy", choices())
def test_what_fits_is_planned_as_without_a_limit(policy):
    free = plan(TOWERS, device(4), policy)
    assert plan(TOWERS, device(4), policy, max_arena_bytes=free.arena_bytes) == free


def test_a_plan_that_is_too_large_gets_fewer_veus():
    """One after another, nine results are alive at once; four towers at once keep twelve."""
    free = plan(TOWERS, device(4), "locality")
    limited = plan(TOWERS, device(4), "locality", max_arena_bytes=free.arena_bytes - 1)
    assert limited.arena_bytes < free.arena_bytes
    assert limited.num_veus == free.num_veus == 4
    assert sum(map(bool, limited.veus)) < sum(map(bool, free.veus))


@pytest.mark.parametrize("policy", choices())
def test_a_limit_that_nothing_fits_states_what_would(policy):
    with pytest.raises(PlanError) as error:
        plan(TOWERS, device(4), policy, max_arena_bytes=1000)
    least = 9 * 256
    assert str(error.value).startswith(
        f"test: max_arena_bytes is 1,000, and the smallest plan needs {least:,} bytes ("
    )
    assert str(error.value).endswith("): allow that much, or split the model")
    assert plan(TOWERS, device(4), policy, max_arena_bytes=least).arena_bytes <= least


@given(graphs(max_operators=30), st.integers(1, 8), st.sampled_from(choices()), st.floats(0, 1))
def test_every_limit_that_can_be_kept_is_kept(made, num_veus, policy, share):
    """Any limit from what the smallest plan takes: ``plan`` proves what it returns."""
    smallest = plan(made, device(1), "sequential").arena_bytes
    largest = plan(made, device(num_veus), policy).arena_bytes
    limit = max(smallest, int(smallest + share * (largest - smallest)))
    assert plan(made, device(num_veus), policy, max_arena_bytes=limit).arena_bytes <= limit


def test_the_baseline_is_always_there():
    """The selector compares with it."""
    within = policies_within(9 * 256, TOWERS, 4, costs(), {"estf": POLICIES["estf"]})
    assert list(within) == ["estf"]
    assert "sequential" in policies_within(9 * 256, TOWERS, 4, costs(), POLICIES)


def test_no_policy_plans_twice():
    asked: list[int] = []

    def counted(*given):
        asked.append(given[1])
        return POLICIES["estf"](*given)

    counting = {"estf": Policy("estf", counted, "counts")}
    within = policies_within(1 << 20, TOWERS, 4, costs(), counting)
    for _ in range(2):
        placement = within["estf"](TOWERS, 4, costs())
    assert placement == POLICIES["estf"](TOWERS, 4, costs())
    assert asked == [4]
