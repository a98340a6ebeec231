from __future__ import annotations

import pytest
from graphs import US, costs, device, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.schedule import POLICIES, explain, plan
from tvm_rammer.schedule.costs import CostModel

CHAIN = graph(([], [(1, 20.0)]), ([0], [(1, 20.0)]), ([1], [(1, 20.0)]))
#: Two operators between a first and a last one, all of one tile.
DIAMOND = graph(([], [(1, 1.0)]), ([0], [(1, 9.0)]), ([0], [(1, 9.0)]), ([1, 2], [(1, 1.0)]))


def explained(made, policy="wavefront", veus=2, given=None):
    return explain(plan(made, device(veus), policy, given), given or costs())


def test_a_chain_has_nothing_to_run_side_by_side():
    found = explained(CHAIN)
    assert (found.operators, found.co_scheduled, found.inseparable) == (3, 0, 3)
    assert found.overlap == 0
    assert found.limit == "critical path"
    assert found.needs == (
        "more rTasks or faster kernels for the operators of the longest path, above all op0 (60 us)"
    )


def test_two_branches_run_side_by_side():
    found = explained(DIAMOND)
    assert (found.operators, found.co_scheduled, found.inseparable) == (4, 2, 2)
    assert found.overlap * found.predicted == pytest.approx(9 * US - 0.1 * US)


def test_the_same_branches_one_after_the_other_do_not():
    found = explained(DIAMOND, "sequential")
    assert (found.co_scheduled, found.overlap) == (0, 0)
    assert found.limit == "waiting"
    assert found.needs == (
        "more independent work, or larger rTasks: vEUs wait for 52% of the time, at 0 waits"
    )


def test_busy_veus_are_limited_by_their_work():
    made = graph(*(([], [(4, 10.0)]) for _ in range(4)))
    found = explained(made)
    assert found.limit == "work"
    assert found.needs == (
        "faster kernels, above all for op0 (160 us), or more vEUs: they compute all the time"
    )


def test_a_tiny_program_is_limited_by_its_launch():
    found = explained(graph(([], [(1, 0.5)])))
    assert found.limit == "launch"
    assert found.needs == "more work per run: the launch alone takes 1 us"


def test_weights_from_memory_are_a_limit():
    from test_traffic import WEIGHT, independent

    scarce = CostModel(0.0, 0.0, 0.0, l3_bytes=WEIGHT, memory_bandwidth=WEIGHT / (50 * US))
    found = explained(independent([0, 1, 2, 3]), "estf", 2, scarce)
    assert found.limit == "bandwidth"
    assert found.needs == "fewer bytes: all vEUs wait for 4.0 KiB of weights from memory"


@settings(max_examples=100)
@given(graphs(max_operators=30), st.integers(1, 8), st.sampled_from(sorted(POLICIES)))
def test_shares_are_shares(made, num_veus, policy):
    found = explained(made, policy, num_veus)
    assert 0 <= found.overlap <= 1 and 0 <= found.utilisation <= 1 + 1e-9
    assert found.co_scheduled + found.inseparable <= found.operators == len(made.operators)
    assert found.predicted >= max(found.critical_path, found.work, found.traffic) * (1 - 1e-9)


@settings(max_examples=100)
@given(graphs(max_operators=25))
def test_inseparable_operators_are_ancestors_or_descendants_of_all(made):
    above = [set(before) for before in made.predecessors]
    for before in above:
        for number in list(before):
            before |= above[number]
    count = len(above)
    alone = sum(
        all(n == m or n in above[m] or m in above[n] for m in range(count)) for n in range(count)
    )
    assert explained(made, "sequential").inseparable == alone
