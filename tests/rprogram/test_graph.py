"""A graph with other rKernels is that graph: who reads whom is not looked for again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fuzzing.random_graphs import SHAPES, random_graph


@pytest.mark.parametrize("shape", SHAPES)
def test_fewer_candidates_leave_the_structure(shape):
    made = random_graph(3, shape, 40)
    assert made.levels
    fewer = made.with_candidates(op.candidates[:1] for op in made.operators)
    assert [op.candidates for op in fewer.operators] == [op.candidates[:1] for op in made.operators]
    anew = replace(made, operators=fewer.operators)
    assert fewer == anew
    for name in ("producers", "writers", "predecessors", "successors", "levels"):
        assert getattr(fewer, name) == getattr(anew, name)
    assert fewer.predecessors is made.predecessors


def test_costs_are_of_kernels_by_name():
    made = random_graph(3, "mixed", 40)
    name = made.operators[0].candidates[0].name
    dear = made.with_costs({name: 1.0})
    for before, after in zip(made.operators, dear.operators, strict=True):
        for old, new in zip(before.candidates, after.candidates, strict=True):
            assert new == replace(old, tile_time=1.0 if old.name == name else old.tile_time)
