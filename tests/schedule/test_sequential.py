from __future__ import annotations

from graphs import costs, graph, graphs, kernel, ranges
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule import sequential


def test_an_operator_takes_all_veus_if_its_work_pays_for_the_barrier():
    placement = sequential(graph(([], [(8, 1.0)]), ([0], [(8, 1.0)])), 2, costs())
    assert ranges(placement) == [[(0, 0, 4), (1, 0, 4)], [(0, 4, 8), (1, 4, 8)]]
    assert placement.barrier


def test_an_operator_with_too_little_work_stays_on_one_veu():
    """Two tiles of 0.2 us: 0.4 us on one vEU, 0.2 + 0.3 us on two."""
    placement = sequential(graph(([], [(2, 0.2)])), 2, costs())
    assert ranges(placement) == [[(0, 0, 2)], []]


def test_no_more_veus_than_shorten_the_longest_range():
    """Five tiles on four vEUs take two rounds, which three vEUs do as well."""
    placement = sequential(graph(([], [(5, 1.0)])), 4, costs())
    assert ranges(placement) == [[(0, 0, 1)], [(0, 1, 3)], [(0, 3, 5)], []]


def test_the_candidate_that_ends_soonest_is_taken():
    """The first is fast on many vEUs, the second has less work in all."""
    work = ([], [(8, 1.0), (2, 3.0)])
    chosen = {veus: sequential(graph(work), veus, costs()).veus[0][0].candidate for veus in (1, 8)}
    assert chosen == {1: 1, 8: 0}


@given(graphs(), st.integers(1, 16))
def test_every_operator_has_a_wave_of_its_own_in_topological_order(made, num_veus):
    placement = sequential(made, num_veus, costs())
    for veu in placement.veus:
        assert [p.wave for p in veu] == [p.operator for p in veu]
        assert [p.operator for p in veu] == sorted(p.operator for p in veu)


@given(st.integers(0, 100), st.floats(0, 10), st.integers(1, 32))
def test_best_width_is_what_trying_all_widths_finds(tiles, microseconds, num_veus):
    model, body = costs(), kernel(tiles, microseconds)
    times = [model.operator_time(body, width) for width in range(1, num_veus + 1)]
    assert model.best_width(body, num_veus) == 1 + times.index(min(times))
