from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from graphs import US, costs, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.schedule import estf, simulate, synchronise
from tvm_rammer.schedule.estf import place_whole
from tvm_rammer.schedule.list_schedule import ListSchedule, water_level


def place(made, num_veus, model=None):
    placement = estf(made, num_veus, model or costs())
    return [[(p.operator, p.start, p.stop) for p in veu] for veu in placement.veus]


def makespan(made, num_veus):
    placement = estf(made, num_veus, costs())
    return simulate(synchronise(made, placement), costs()).makespan / US - 1


def veu_of(operator, veus):
    return next(v for v, mine in enumerate(veus) if any(n == operator for n, _, _ in mine))


def test_of_those_that_can_start_the_longest_path_goes_first():
    made = graph(([], [(1, 2.0)]), ([], [(1, 1.0)]), ([1], [(1, 5.0)]), ([0, 2], [(1, 1.0)]))
    assert [number for number, _, _ in place(made, 1)[0]] == [1, 2, 0, 3]


def test_what_can_start_first_goes_first_whatever_its_level():
    """A chain of three short operators beside a long one: no level holds it up."""
    made = graph(([], [(1, 6.0)]), ([], [(1, 2.0)]), ([1], [(1, 2.0)]), ([2], [(1, 2.0)]))
    assert sorted(place(made, 2)) == [[(0, 0, 1)], [(1, 0, 1), (2, 0, 1), (3, 0, 1)]]


def test_a_consumer_follows_its_producer_for_as_long_as_a_wait_takes():
    pairs = [([], [(1, 2.0)]), ([], [(1, 2.0)]), ([1], [(1, 1.0)]), ([0], [(1, 1.0)])]
    veus = place(graph(*pairs), 2)
    assert veu_of(0, veus) == veu_of(3, veus) != veu_of(1, veus) == veu_of(2, veus)


def test_an_operator_alone_takes_all_veus():
    assert place(graph(([], [(8, 1.0)])), 2) == [[(0, 0, 4)], [(0, 4, 8)]]


def test_enough_operators_for_all_veus_stay_whole():
    veus = place(graph(*[([], [(4, 1.0)])] * 4), 2)
    assert sorted(piece for veu in veus for piece in veu) == [(n, 0, 4) for n in range(4)]


def test_an_operator_on_the_critical_path_is_split_although_others_are_ready():
    """Its chain takes 16 us even across both vEUs, all other work 4 us."""
    chain = [([], [(8, 1.0)]), *[([n], [(8, 1.0)]) for n in range(3)]]
    made = graph(*chain, *[([], [(4, 0.25)])] * 4)
    assert {n for veu in place(made, 2) for n, start, stop in veu if stop - start < 8} >= {0}
    assert makespan(made, 2) <= 18.5


def test_operators_that_share_scarce_bandwidth_run_one_after_the_other():
    """Each of two operators alone draws all there is; together both would only be stretched."""
    made = graph(([], [(1, 1.0)]), ([], [(1, 1.0)]))
    scarce = replace(costs(), bandwidth=512 / US)
    assert place(made, 2) == [[(0, 0, 1)], [(1, 0, 1)]]
    assert place(made, 2, scarce) == [[(0, 0, 1), (1, 0, 1)], []]


def test_a_stretch_that_costs_less_than_a_turn_is_taken():
    """512 bytes per us each of 900: 14 % longer together, 100 % longer one after the other."""
    made = graph(([], [(1, 1.0)]), ([], [(1, 1.0)]))
    assert place(made, 2, replace(costs(), bandwidth=900 / US)) == [[(0, 0, 1)], [(1, 0, 1)]]


@settings(max_examples=40)
@given(graphs(20), st.integers(2, 8), st.floats(7, 12))
def test_heeding_what_others_draw_never_makes_a_plan_longer(made, num_veus, digits):
    given_costs = replace(costs(), bandwidth=10.0**digits)

    def seconds(placement):
        return simulate(synchronise(made, placement), given_costs).makespan

    both = [
        place_whole(ListSchedule(made, num_veus, given_costs), bandwidth)[0]
        for bandwidth in (given_costs.bandwidth, inf)
    ]
    assert seconds(estf(made, num_veus, given_costs)) <= min(map(seconds, both))


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(0, 100))
def test_water_ends_at_one_level(starts, work):
    level = water_level(starts, work)
    assert sum(max(0.0, level - start) for start in starts) == pytest.approx(work, abs=1e-9)
