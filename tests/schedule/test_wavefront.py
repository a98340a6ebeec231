from __future__ import annotations

from collections import defaultdict

from graphs import US, costs, graph, graphs, ranges
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule import wavefront


def place(made, num_veus):
    return ranges(wavefront(made, num_veus, costs()))


def test_small_operators_stay_whole_side_by_side():
    made = graph(*[([], [(4, 1.0)])] * 4, ([0, 1, 2, 3], [(1, 0.1)]))
    first, second = place(made, 2)
    assert {number for number, _, _ in first} == {0, 1, 4}
    assert second == [(2, 0, 4), (3, 0, 4)] or {n for n, _, _ in second} == {2, 3}


def test_a_big_operator_is_split_and_small_ones_fill_up():
    made = graph(([], [(8, 1.0)]), ([], [(2, 1.0)]), ([0, 1], [(1, 0.1)]))
    assert place(made, 2)[0][0] == (0, 0, 5)
    assert place(made, 2)[1] == [(0, 5, 8), (1, 0, 2)]


def test_whole_tiles_that_fit_no_fair_share_are_spread_evenly():
    """Three tiles of 2 us and three of 1 us on two vEUs: 4.5 us each cannot be had."""
    made = graph(([], [(3, 2.0)]), ([], [(3, 1.0)]), ([0, 1], [(1, 0.1)]))
    loads = [
        sum({0: 2, 1: 1, 2: 0}[number] * (stop - start) for number, start, stop in veu)
        for veu in place(made, 2)
    ]
    assert sorted(loads) == [4, 5]


def test_an_excess_below_the_cost_of_a_wait_is_no_reason_to_split():
    """Three operators of 0.1 us on two vEUs: 0.15 us each is not worth a wait of 0.1 us."""
    made = graph(*[([], [(2, 0.05)])] * 3, ([0, 1, 2], [(1, 0.1)]))
    pieces = [piece for veu in place(made, 2) for piece in veu]
    assert len(pieces) == len(made.operators)


def test_an_operator_runs_where_its_input_is():
    """The consumers of two branches stay on the vEUs of the branches."""
    both = [([], [(2, 1.0)]), ([], [(2, 1.0)])]
    crossed = [([1], [(2, 1.0)]), ([0], [(2, 1.0)])]
    first, second = place(graph(*both, *crossed, ([2, 3], [(1, 0.1)])), 2)
    assert [n for n, _, _ in first][:2] == [0, 3]
    assert [n for n, _, _ in second][:2] == [1, 2]


def test_the_critical_path_goes_first_on_a_veu():
    """Operator 1 has the longer way to go although operator 0 is longer itself."""
    made = graph(
        ([], [(1, 2.0)]), ([], [(1, 1.0)]), ([1], [(1, 5.0)]), ([2], [(1, 5.0)]), ([0, 3], [(1, 1)])
    )
    assert [number for number, _, _ in place(made, 1)[0]][:2] == [1, 0]


def test_a_crowded_wave_takes_efficient_kernels():
    candidates = [(8, 1.0), (2, 3.0)]
    made = graph(*[([], candidates)] * 4, ([0, 1, 2, 3], [(1, 0.1)]))
    placement = wavefront(made, 4, costs())
    assert {p.candidate for veu in placement.veus for p in veu if p.wave == 0} == {1}


def test_barriers_are_an_option():
    made = graph(([], [(1, 1.0)]))
    assert not wavefront(made, 2, costs()).barrier
    assert wavefront(made, 2, costs(), barrier=True).barrier


@given(graphs(), st.integers(1, 16))
def test_waves_follow_the_graph_and_ranges_are_few_contiguous_and_complete(made, num_veus):
    placement = wavefront(made, num_veus, costs())
    waves = {p.operator: p.wave for veu in placement.veus for p in veu}
    pieces = defaultdict(list)
    candidates = {}
    for veu in placement.veus:
        assert [p.wave for p in veu] == sorted(p.wave for p in veu)
        for p in veu:
            pieces[p.operator].append((p.start, p.stop))
            candidates[p.operator] = p.candidate
            assert p.wave == waves[p.operator] >= made.levels[p.operator]
            assert all(waves[before] < p.wave for before in made.predecessors[p.operator])
    for number, operator in enumerate(made.operators):
        covered = [i for start, stop in sorted(pieces[number]) for i in range(start, stop)]
        assert covered == list(range(operator.candidates[candidates[number]].num_tiles))
        assert len(pieces[number]) <= num_veus


@given(graphs(), st.integers(1, 16))
def test_every_wave_is_balanced_to_a_tile_and_a_wait(made, num_veus):
    """No vEU is above the fair share by more than the longest tile of the wave and one wait."""
    placement = wavefront(made, num_veus, costs())
    loads = defaultdict(lambda: [0.0] * num_veus)
    tile = defaultdict(float)
    for number, veu in enumerate(placement.veus):
        for p in veu:
            body = made.operators[p.operator].candidates[p.candidate]
            loads[p.wave][number] += (p.stop - p.start) * body.tile_time
            tile[p.wave] = max(tile[p.wave], body.tile_time)
    for wave, load in loads.items():
        # Whole operators up to the barrier's worth are allowed: splitting them would cost it.
        slack = tile[wave] + 0.4 * US
        assert max(load) <= (sum(load) / num_veus + slack) * (1 + 1e-9)
