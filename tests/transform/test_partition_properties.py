"""Properties of every partition, on random graphs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import Op, regions, run_main, small_module
from tvm import relax

from tvm_rammer.region.marks import read_left_out
from tvm_rammer.transform.partition_regions import PartitionRegions


def region_of(mod: tvm.IRModule) -> dict[str, str]:
    return {name: region for region, names in regions(mod).items() for name in names}


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Op], list[int]]:
    inputs = draw(st.integers(1, 2))
    ops: list[Op] = []
    for _ in range(draw(st.integers(1, 12))):
        before = st.integers(0, inputs + len(ops) - 1)
        ops.append(Op(draw(st.integers(0, 3)) > 0, draw(before), draw(before)))
    outputs = draw(st.lists(st.integers(0, inputs + len(ops) - 1), min_size=1, max_size=4))
    return inputs, ops, outputs


def depths(inputs: int, ops: list[Op]) -> dict[int, int]:
    """By definition: the most times that a path to an operator enters a region."""

    def enter(node: int) -> int:
        if node < inputs:
            return 0
        op = ops[node - inputs]
        return max(enter(p) + (op.planned and not planned(p)) for p in (op.left, op.right))

    def planned(node: int) -> bool:
        return node >= inputs and ops[node - inputs].planned

    # A path from an input enters its first region without leaving one: count from nought.
    return {inputs + k: enter(inputs + k) for k, op in enumerate(ops) if op.planned}


def paths_between(inputs: int, ops: list[Op], region: set[int]) -> Iterator[int]:
    """Operators outside of a region that are reached from it and reach it."""
    after: set[int] = set()
    for node, op in enumerate(ops, start=inputs):
        sources = {op.left, op.right}
        if node in region and sources & after:
            yield from sources & after
        if node not in region and sources & (after | region):
            after.add(node)


@given(graphs())
@settings(max_examples=100)
def test_no_path_leaves_a_region_and_comes_back(graph):
    inputs, ops, outputs = graph
    after = PartitionRegions()(small_module(inputs, ops, outputs))
    for names in regions(after).values():
        assert not list(paths_between(inputs, ops, {int(name[1:]) for name in names}))


@given(graphs())
@settings(max_examples=100)
def test_operators_are_in_one_region_if_their_depths_are_equal(graph):
    inputs, ops, outputs = graph
    after = PartitionRegions(min_operators=1)(small_module(inputs, ops, outputs))
    found = region_of(after)
    depth = depths(inputs, ops)
    assert found.keys() == {f"v{node}" for node in depth}
    by_region = {(found[f"v{node}"], level) for node, level in depth.items()}
    assert len(by_region) == len({r for r, _ in by_region}) == len({d for _, d in by_region})


@given(graphs())
@settings(max_examples=100)
def test_a_partition_is_well_formed_and_computes_the_same(graph):
    inputs, ops, outputs = graph
    before = small_module(inputs, ops, outputs)
    after = PartitionRegions()(before)
    relax.analysis.well_formed(after)
    assert after["main"].ret_ty == before["main"].ret_ty
    for got, want in zip(run_main(after), run_main(before), strict=True):
        np.testing.assert_array_equal(got, want)


@given(graphs())
@settings(max_examples=50)
def test_a_partition_is_complete(graph):
    """Every operator is in a region of at least two, or has a reason."""
    inputs, ops, outputs = graph
    after = PartitionRegions()(small_module(inputs, ops, outputs))
    assert all(len(names) >= 2 for names in regions(after).values())
    packed = {f"v{inputs + k}" for k, op in enumerate(ops) if not op.planned}
    given_reasons = {item.operator for item in read_left_out(after)} - {"add"}
    assert given_reasons == packed
