"""More rKernels to choose from never make a plan longer, whatever a policy thinks of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import US, costs, device, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.schedule import POLICIES, Placed, Placement, Policy, plan, simulate
from tvm_rammer.schedule.policies import AUTO

#: Fetching what another vEU wrote takes as long as computing it.
COSTS = replace(costs(), transfer=0.2 * US, transfer_byte=4e-9)


def with_finer(made, number):
    """The graph with ``number`` finer candidates for each operator: more tiles, more work."""
    operators = []
    for operator in made.operators:
        (first, *_) = operator.candidates
        finer = [
            replace(
                first,
                name=f"{first.name}x{2**k}",
                num_tiles=first.num_tiles * 2**k,
                tile_time=first.tile_time * 1.1**k / 2**k,
            )
            for k in range(1, number + 1)
        ]
        operators.append(replace(operator, candidates=(first, *finer)))
    return replace(made, operators=tuple(operators))


@settings(max_examples=150, deadline=None)
@given(
    graphs(25),
    st.sampled_from([*sorted(POLICIES), AUTO]),
    st.sampled_from([2, 3, 8, 16, 64]),
    st.integers(0, 2),
)
def test_plans_are_no_longer(made, policy, num_veus, number):
    few, more = (
        simulate(plan(with_finer(made, n), device(num_veus), policy, COSTS), COSTS).makespan
        for n in (number, number + 1)
    )
    assert more <= 1.01 * few


def test_a_policy_that_takes_the_finest_is_held_back():
    """Sixteen tiles that wait for each other, where two would do."""

    def finest(made, num_veus, given_costs):
        veus = [[] for _ in range(num_veus)]
        for number, operator in enumerate(made.operators):
            last = len(operator.candidates) - 1
            tiles = operator.candidates[last].num_tiles
            for tile in range(tiles):
                veus[tile % num_veus].append(Placed(number, last, tile, tile + 1, number))
        return Placement("finest", tuple(map(tuple, veus)))

    made = with_finer(graph(([], [(2, 1.0)]), ([0], [(2, 1.0)])), 3)
    policy = Policy("finest", finest, "the finest of all")
    placement = policy(made, 2, COSTS)
    assert {p.candidate for veu in placement.veus for p in veu} == {0}
    assert {p.candidate for veu in finest(made, 2, COSTS).veus for p in veu} == {3}


@pytest.mark.parametrize("num_veus", [2, 16])
def test_who_has_no_choice_is_asked_once(num_veus):
    asked = []

    def place(made, number, given_costs):
        asked.append(made)
        return POLICIES["sequential"].place(made, number, given_costs)

    Policy("once", place, "asked once")(graph(([], [(4, 1.0)])), num_veus, COSTS)
    assert len(asked) == 1


def test_candidates_that_are_not_taken_are_not_missed():
    """Of four, the policy takes the second: it is asked again only for the first alone."""
    asked = []

    def second(made, num_veus, given_costs):
        asked.append([len(operator.candidates) for operator in made.operators])
        chosen = min(1, asked[-1][0] - 1)
        tiles = made.operators[0].candidates[chosen].num_tiles
        veus = [(Placed(0, chosen, start, start + 1, 0),) for start in range(tiles)]
        return Placement("second", (tuple(piece for veu in veus for piece in veu), ()))

    made = with_finer(graph(([], [(2, 1.0)])), 3)
    Policy("second", second, "the second of all")(made, 2, COSTS)
    assert asked == [[4], [1]]
