"""Idle vEUs join operators so that data stay where they are; no plan gets longer by it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from graphs import US, costs, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.machine.topology import PairCosts, topology_of
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.rprogram.program import CELLS, TILE_RANGES
from tvm_rammer.schedule import POLICIES, Placed, Placement, simulate, synchronise
from tvm_rammer.schedule.cut_alike import cut_alike
from tvm_rammer.schedule.policies import finish
from tvm_rammer.schedule.trials import Trials

SIZE = 1 << 14
COSTS = replace(costs(), transfer=0.1 * US, transfer_byte=1 * US / SIZE)
ROWS = tuple((1 << CELLS // TILE_RANGES) - 1 << start for start in range(0, CELLS, 4))


def chain(*tiles: int) -> OperatorGraph:
    """Operators that each read the rows that the one before wrote; 16 us of work in each."""
    buffers = [Buffer("input", (SIZE // 4,), "float32", "input")]
    buffers += [Buffer(f"result{k}", (SIZE // 4,), "float32", "output", k) for k in range(9)]
    operators = tuple(
        Operator(
            f"op{k}",
            (RKernel("body", count, ("read", "write"), 16 * US / count, footprints=(ROWS, ROWS)),),
            (k, k + 1),
        )
        for k, count in enumerate(tiles)
    )
    return OperatorGraph("test", tuple(buffers[: len(tiles) + 1]), operators)


def ranges(placement: Placement, operator: int) -> list[tuple[int, int, int]]:
    return [
        (veu, placed.start, placed.stop)
        for veu, mine in enumerate(placement.veus)
        for placed in mine
        if placed.operator == operator
    ]


def test_more_veus_than_end_it_sooner_keep_data_at_hand():
    """Six tiles end as soon on three of four vEUs, but the next operator is cut for four."""
    made = chain(64, 6, 64)
    plain = POLICIES["sequential"].place(made, 4, COSTS)
    assert ranges(plain, 1) == [(0, 0, 2), (1, 2, 4), (2, 4, 6)]
    found = cut_alike(plain, Trials(made, 4, COSTS))
    assert ranges(found, 1) == [(0, 0, 1), (1, 1, 3), (2, 3, 4), (3, 4, 6)]
    before, after = (simulate(synchronise(made, p), COSTS).makespan for p in (plain, found))
    assert after < 0.98 * before
    assert POLICIES["sequential"](made, 4, COSTS) == found


def test_few_tiles_go_to_where_they_lie():
    """Two tiles on four vEUs: each is half of the rows."""
    made = chain(64, 2, 64)
    found = cut_alike(POLICIES["sequential"].place(made, 4, COSTS), Trials(made, 4, COSTS))
    assert ranges(found, 1) == [(1, 0, 1), (3, 1, 2)]


def test_who_is_busy_does_not_join():
    made = chain(64, 6, 64)
    busy = replace(
        made,
        buffers=(*made.buffers, Buffer("side", (1,), "float32", "output", 9)),
        operators=(
            *made.operators,
            Operator("side", (RKernel("side", 1, ("read", "write"), 99 * US),), (0, 4)),
        ),
    )
    plain = POLICIES["sequential"].place(made, 4, COSTS)
    last = (*plain.veus[3][:1], Placed(3, 0, 0, 1, 1), *plain.veus[3][1:])
    beside = Placement("test", (*plain.veus[:3], last))
    assert ranges(cut_alike(beside, Trials(busy, 4, COSTS)), 1) == ranges(plain, 1)


@pytest.mark.parametrize("veus", [1, 4])
def test_where_data_are_free_nothing_changes(veus):
    made = chain(64, 6, 64)
    free = costs()
    plain = POLICIES["sequential"].place(made, veus, free)
    assert cut_alike(plain, Trials(made, veus, free)) is plain


def test_plans_of_very_many_tasks_stay_as_they_are(monkeypatch):
    made = chain(64, 6, 64)
    plain = POLICIES["sequential"].place(made, 4, COSTS)
    monkeypatch.setattr("tvm_rammer.schedule.cut_alike._MOST_TASKS", 10)
    assert cut_alike(plain, Trials(made, 4, COSTS)) is plain


def test_far_is_dearer_than_near():
    """Between complexes, the same plan gains more."""
    made = chain(64, 6, 64)
    near = PairCosts(COSTS.point_to_point, COSTS.transfer, COSTS.transfer_byte)
    apart = replace(COSTS, topology=topology_of(range(4), (0, 0, 1, 1), (0,) * 4, near))
    gains = []
    for given_costs in (COSTS, apart):
        plain = POLICIES["sequential"].place(made, 4, given_costs)
        found = cut_alike(plain, Trials(made, 4, given_costs))
        before, after = (
            simulate(synchronise(made, p), given_costs).makespan for p in (plain, found)
        )
        gains.append(before - after)
    assert gains[1] > 1.5 * gains[0] > 0


@settings(max_examples=60)
@given(graphs(25), st.sampled_from(sorted(POLICIES)), st.integers(2, 16), st.integers(0, 9))
def test_no_plan_gets_longer_and_every_plan_is_safe(made, policy, num_veus, dear):
    given_costs = replace(costs(), transfer=0.1 * US, transfer_byte=dear * 1e-10)
    plain = POLICIES[policy].place(made, num_veus, given_costs)
    found = cut_alike(plain, Trials(made, num_veus, given_costs))
    before, after = (simulate(synchronise(made, p), given_costs).makespan for p in (plain, found))
    assert after <= before
    finish(synchronise(made, found))
    for mine, were in zip(found.veus, plain.veus, strict=True):
        if all(a.wave <= b.wave for a, b in pairwise(were)):
            assert all(a.wave <= b.wave for a, b in pairwise(mine))
