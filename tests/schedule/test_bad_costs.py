"""Costs that no policy can plan with are refused before any of them is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import costs, device, graph

from tvm_rammer.errors import InputError
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.schedule import POLICIES, CostModel, auto, choices, plan

NAN, INF = float("nan"), float("inf")
GOOD = graph(([], [(4, 1.0), (2, 1.5)]), ([], [(4, 1.0)]), ([0, 1], [(8, 1.0)]))


def with_kernels(number: int, **changes: object) -> OperatorGraph:
    """The graph with the last candidate of one operator changed."""
    operators = list(GOOD.operators)
    *others, last = operators[number].candidates
    changed = (*others, replace(last, name="odd", **changes))
    operators[number] = replace(operators[number], candidates=changed)
    return replace(GOOD, operators=tuple(operators))


@pytest.mark.parametrize("policy", choices())
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tile_time": NAN}, "nan s"),
        ({"tile_time": INF}, "inf s"),
        ({"tile_time": -1e-6}, "-1e-06 s"),
        ({"tile_time": None}, "None s"),
    ],
)
def test_a_kernel_needs_a_time(policy, number, changes, words):
    tiles = GOOD.operators[number].candidates[-1].num_tiles
    with pytest.raises(InputError) as caught:
        plan(with_kernels(number, **changes), device(2), policy)
    assert str(caught.value) == (
        f"operator 'op{number}': kernel 'odd' has {tiles} tiles of {words}; "
        "give it finite numbers from 0"
    )


@pytest.mark.parametrize("tiles", [-1, None])
def test_a_kernel_needs_a_number_of_tiles(tiles):
    with pytest.raises(InputError) as caught:
        plan(with_kernels(1, num_tiles=tiles), device(2))
    assert str(caught.value) == (
        f"operator 'op1': kernel 'odd' has {tiles} tiles of 1e-06 s; give it finite numbers from 0"
    )


@pytest.mark.parametrize("policy", choices())
def test_work_may_cost_nothing(policy):
    program = plan(with_kernels(1, tile_time=0.0), device(2), policy)
    assert program.num_tasks >= 3


def test_an_operator_needs_a_kernel():
    first, *others = GOOD.operators
    bare = replace(GOOD, operators=(replace(first, candidates=()), *others))
    with pytest.raises(InputError) as caught:
        plan(bare, device(2))
    assert str(caught.value) == "operator 'op0' has no kernel; give it at least one"


def test_the_selector_refuses_them_as_well():
    with pytest.raises(InputError, match="4 tiles of nan s"):
        auto(with_kernels(1, tile_time=NAN), 2, costs(), POLICIES)


@pytest.mark.parametrize("value", [-1e-9, NAN, INF, None])
@pytest.mark.parametrize("name", ["point_to_point", "barrier", "launch", "far_byte"])
def test_synchronising_costs_something_from_nothing(name, value):
    with pytest.raises(InputError) as caught:
        CostModel(**{"point_to_point": 0.0, "barrier": 0.0, "launch": 0.0, name: value})
    assert str(caught.value) == f"the cost {name} is {value}; give a finite number from 0"


@pytest.mark.parametrize("value", [0, -1, NAN, INF, None])
@pytest.mark.parametrize("name", ["bandwidth", "memory_bandwidth", "l2_bytes", "l3_bytes"])
def test_caches_hold_something_and_bytes_move(name, value):
    with pytest.raises(InputError) as caught:
        CostModel(0.0, 0.0, 0.0, **{name: value})
    assert str(caught.value) == f"the cost {name} is {value}; give a finite number above 0"
