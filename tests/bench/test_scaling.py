from __future__ import annotations

import numpy as np
from bench.graphs import graphs_by_veus
from bench.scaling import (
    BOUND,
    BOUNDS,
    count_choices,
    fast_only,
    makespans,
    mean_speed_up,
    speed_up,
)
from fuzzing.random_graphs import SHAPES, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info
from onnx.numpy_helper import from_array

from tvm_rammer.machine import VDevice
from tvm_rammer.schedule import POLICIES

FLOAT = TensorProto.FLOAT
KNOWN = VDevice("two cores", num_veus=2)


@settings(max_examples=20)
@given(st.sampled_from(sorted(SHAPES)), st.integers(2, 12), st.integers(0, 99))
def test_auto_is_between_the_bound_and_sequential(shape: str, operators: int, seed: int) -> None:
    found = makespans([random_graph(seed, shape, operators)], KNOWN, 4)
    assert set(found) == {"auto", *POLICIES, BOUND, *BOUNDS}
    # With one region the largest of the three is the bound.
    assert found[BOUND] == min(max(found[name] for name in BOUNDS), found["auto"])
    assert found["auto"] <= found["sequential"] * (1 + 1e-9)


def test_kernels_are_those_of_a_device_of_that_size() -> None:
    """70 rows of pixels, longer than any tile, are enough for eight vEUs; for 16 they are cut."""
    shapes = {"x": (1, 16, 70, 64), "y": (1, 16, 70, 64)}
    x, y = (make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items())
    weight = from_array(np.ones((16, 16, 1, 1), "float32"), "weight")
    graph = make_graph([make_node("Conv", ["x", "weight"], ["y"])], "g", [x], [y], [weight])
    found = graphs_by_veus(make_model(graph), (8, 16))
    tiles = {
        count: max(op.candidates[0].num_tiles for graph in graphs for op in graph.operators)
        for count, graphs in found.items()
    }
    assert tiles[8] < 140 <= tiles[16]


def test_regions_are_added_up() -> None:
    graph = random_graph(1, "wide", 6)
    once, twice = makespans([graph], KNOWN, 4), makespans([graph, graph], KNOWN, 4)
    assert twice == {name: 2 * seconds for name, seconds in once.items()}


def test_the_fast_kernels_alone_leave_no_choice() -> None:
    graphs = [random_graph(1, "wide", 6)]
    alone = fast_only(graphs)
    assert count_choices(alone) == 0
    pairs = zip(graphs[0].operators, alone[0].operators, strict=True)
    assert all(op.candidates[0] == one.candidates[0] for op, one in pairs)


def test_a_model_without_regions_gains_nothing() -> None:
    assert speed_up(makespans([], KNOWN, 4)) == 1.0


def test_the_mean_is_geometric() -> None:
    found = [{"sequential": 4.0, "auto": 1.0}, {"sequential": 1.0, "auto": 1.0}]
    assert mean_speed_up(found) == 2.0
