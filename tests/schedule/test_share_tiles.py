from __future__ import annotations

from collections import Counter

import pytest
from graphs import US, costs, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.rprogram.verify import verify
from tvm_rammer.schedule import plan_memory, simulate, synchronise
from tvm_rammer.schedule.list_schedule import ListSchedule
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.share_tiles import share_tiles


def place(made, num_veus):
    schedule = ListSchedule(made, num_veus, costs())
    return share_tiles(made, schedule.chosen, schedule.ranks, num_veus, costs())


def program(made, num_veus):
    return plan_memory(synchronise(made, Placement("test", place(made, num_veus))))


@settings(max_examples=60)
@given(graphs(), st.integers(1, 8))
def test_plans_are_safe_and_run_every_tile_once(made, num_veus):
    planned = program(made, num_veus)
    verify(planned)
    tiles = Counter(
        (task.operator, tile)
        for _, _, task in planned.tasks()
        for tile in range(task.start, task.stop)
    )
    wanted = sum(planned.kernel_of(n).num_tiles for n in range(len(made.operators)))
    assert (len(tiles), tiles.total()) == (wanted, wanted)


@settings(max_examples=30)
@given(graphs(), st.integers(1, 4))
def test_waves_follow_the_graph(made, num_veus):
    """What runs on another vEU than a producer is in a later wave than it."""
    where = [(veu, piece) for veu, mine in enumerate(place(made, num_veus)) for piece in mine]
    for veu, piece in where:
        for other, before in where:
            if before.operator in made.predecessors[piece.operator]:
                assert before.wave < piece.wave or (other == veu and before.wave <= piece.wave)


def test_what_has_time_makes_way_for_what_is_urgent():
    """While 1 runs, the other vEU starts 3; then both run 2, and only then the rest of 3."""
    made = graph(
        ([], [(1, 1.0)]),
        ([0], [(1, 5.0)]),
        ([1], [(2, 6.0)]),
        ([0], [(3, 6.0)]),
        ([2], [(1, 10.0)]),
    )
    assert [[piece.operator for piece in mine] for mine in place(made, 2)] == [
        [0, 1, 2, 3, 4],
        [3, 2, 3],
    ]


def test_one_range_where_a_wait_costs_more_than_sharing_gains():
    made = graph(([], [(4, 0.05)]), ([0], [(4, 0.05)]))
    assert sorted(map(len, place(made, 2))) == [0, 2]


def test_consecutive_ranges_are_one():
    made = graph(([], [(64, 1.0)]))
    (only,) = place(made, 1)
    assert [(piece.start, piece.stop) for piece in only] == [(0, 64)]


def test_operators_share_many_veus():
    """Forty tiles on sixteen vEUs are three rounds."""
    made = graph(*[([], [(5, 4.0)]) for _ in range(8)])
    timeline = simulate(program(made, 16), costs())
    assert timeline.makespan == pytest.approx((1 + 3 * 4) * US)
