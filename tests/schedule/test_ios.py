from __future__ import annotations

from itertools import combinations

import pytest
from fuzzing.random_graphs import random_graph
from graphs import US, costs, graph, graphs, ranges
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.schedule import ios, simulate, synchronise
from tvm_rammer.schedule.ios import (
    StageCosts,
    StageSearch,
    TooManyEndings,
    cut_into_blocks,
    live_results,
)

ONE = [(1, 1.0)]


def masks(made):
    return [sum(1 << after for after in afters) for afters in made.successors]


def search(made, num_veus, r=3, s=8, budget=100_000):
    prices = StageCosts(made.operators, num_veus, costs())
    return StageSearch(masks(made), prices.seconds, r, s, budget), prices


def connected_parts(made, members):
    """Groups of an ending, found the plain way."""
    parts = []
    for member in members:
        touching = [p for p in parts if p & {*made.successors[member], *made.predecessors[member]}]
        parts = [p for p in parts if p not in touching] + [{member}.union(*touching)]
    return tuple(sum(1 << n for n in part) for part in parts)


def best_by_exhaustion(made, prices, r, s):
    """The recurrence over all subsets, without memory."""

    def best(rest):
        if not rest:
            return 0.0
        found = []
        for size in range(1, len(rest) + 1):
            for ending in combinations(sorted(rest), size):
                closed = all(n in ending for m in ending for n in made.successors[m] if n in rest)
                groups = connected_parts(made, ending)
                if closed and len(groups) <= s and max(g.bit_count() for g in groups) <= r:
                    found.append(best(rest - set(ending)) + prices.seconds(groups))
        return min(found)

    return best(frozenset(range(len(made.operators))))


def test_two_branches_run_side_by_side_in_one_stage():
    made = graph(([], ONE), ([0], ONE), ([0], ONE), ([1], ONE), ([2], ONE), ([3, 4], ONE))
    assert sorted(search(made, 2)[0].run()[1]) == [0b001010, 0b010100]
    first, second = ({n for n, _, _ in veu} for veu in ranges(ios(made, 2, costs())))
    assert {frozenset(first - {0, 5}), frozenset(second - {0, 5})} == {
        frozenset({1, 3}),
        frozenset({2, 4}),
    }


def test_a_group_may_have_several_sources():
    """Two products and their sum, twice: each three are one group, which is on one vEU."""
    made = graph(*[([], ONE)] * 4, ([0, 1], ONE), ([2, 3], ONE), ([4, 5], [(1, 0.1)]))
    found, _ = search(made, 2)
    assert [sorted(stage) for stage in found.run()] == [[0b0010011, 0b0101100], [0b1000000]]


def test_r_and_s_limit_groups_and_stages():
    made = graph(*[([], ONE)] * 4, ([0, 1], ONE), ([2, 3], ONE), ([4, 5], ONE))
    for r, s in ((1, 8), (2, 2), (3, 1)):
        for stage in search(made, 4, r, s)[0].run():
            assert len(stage) <= s
            assert max(group.bit_count() for group in stage) <= r
    assert ios(made, 4, costs(), r=1, s=1) != ios(made, 4, costs())


def test_one_group_takes_all_veus_that_make_it_shorter():
    made = graph(([], [(4, 1.0)]), ([0], [(4, 1.0)]))
    assert ranges(ios(made, 2, costs())) == [[(0, 0, 2), (1, 0, 2)], [(0, 2, 4), (1, 2, 4)]]


def test_spare_veus_go_to_the_longest_group():
    made = graph(([], [(6, 1.0)]), ([], [(2, 1.0)]))
    prices = StageCosts(made.operators, 4, costs())
    seconds, widths = prices.allot((0b01, 0b10))
    assert widths == (3, 1)
    assert seconds == pytest.approx((2 + 0.3) * US)


def test_a_search_that_takes_too_long_says_so():
    made = graph(*[([], ONE)] * 12, (list(range(12)), ONE))
    with pytest.raises(TooManyEndings):
        search(made, 2, budget=1000)[0].run()


def test_a_block_that_is_too_wide_is_placed_by_wavefronts():
    """Thirty operators side by side would be four stages of at most eight groups."""
    made = graph(([], ONE), *[([0], [(2, 1.0)])] * 30, (list(range(31)), ONE))
    placement = ios(made, 4, costs())
    assert {p.wave for veu in placement.veus for p in veu if 0 < p.operator < 31} == {1}


def test_blocks_end_where_one_result_is_live():
    made = graph(([], ONE), ([0], ONE), ([0], ONE), ([1, 2], ONE), ([3], ONE), ([3, 4], ONE))
    assert live_results(made) == [0, 1, 2, 2, 1, 2, 0]
    assert cut_into_blocks(made, 10) == [range(0, 1), range(1, 4), range(4, 6)]


def test_long_blocks_are_cut_where_the_fewest_results_are_live():
    """A ladder of two rails never has one live result."""
    rails = [([], ONE), ([], ONE), *[([n, n + 1], ONE) for n in range(20)]]
    made = graph(*rails)
    parts = cut_into_blocks(made, 6)
    assert [n for part in parts for n in part] == list(range(22))
    assert max(map(len, parts)) <= 6


@settings(max_examples=60)
@given(graphs(max_operators=6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_the_search_finds_what_trying_all_stages_finds(made, num_veus, r, s):
    found, prices = search(made, num_veus, r, s)
    stages = found.run()
    total = sum(map(prices.seconds, stages))
    assert total == pytest.approx(best_by_exhaustion(made, prices, r, s))
    done = 0
    for stage in stages:
        for group in stage:
            for number in range(group.bit_length()):
                if group >> number & 1:
                    before = sum(1 << p for p in made.predecessors[number])
                    assert before & ~(done | group) == 0
        done |= sum(stage)
    assert done == (1 << len(made.operators)) - 1


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(2, 40))
def test_blocks_are_all_operators_in_order(seed, largest, operators):
    made = random_graph(seed, "mixed", operators)
    parts = cut_into_blocks(made, largest)
    assert [n for part in parts for n in part] == list(range(operators))
    assert max(map(len, parts)) <= largest


def test_stages_are_better_than_one_operator_at_a_time():
    made = random_graph(4, "diamond", 60)
    spans = [
        simulate(synchronise(made, ios(made, 4, costs(), r=3, s=s)), costs()).makespan
        for s in (1, 8)
    ]
    assert spans[1] < spans[0]
