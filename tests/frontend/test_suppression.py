"""NonMaxSuppression answers ONNX Runtime's rows in its order, of boxes that data may choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_rammer
from tvm_rammer.runtime.onnx_reference import run_onnxruntime

ALL = 2**31 - 1


def suppression(boxes: int, batch: int, classes: int, limits: list[Any], chosen: bool, **how: int):
    """``limits``: how many to keep, the overlap, and perhaps the score; ``chosen`` by data."""
    shapes = {"boxes": (batch, boxes, 4), "scores": (batch, classes, boxes)}
    nodes, read = [], ["boxes", "scores"]
    if chosen:
        shapes["choice"], read = (boxes,), ["some", "their scores"]
        nodes = [
            helper.make_node("NonZero", ["choice"], ["row"]),
            helper.make_node("Squeeze", ["row", "first"], ["places"]),
            helper.make_node("Gather", ["boxes", "places"], ["some"], axis=1),
            helper.make_node("Gather", ["scores", "places"], ["their scores"], axis=2),
        ]
    values = {"first": np.array([0]), "most": np.array(limits[:1], np.int64)}
    names = ["most", "overlap", "score"][: len(limits)]
    values |= {n: np.array([v], np.float32) for n, v in zip(names[1:], limits[1:], strict=True)}
    nodes.append(helper.make_node("NonMaxSuppression", [*read, *names], ["rows"], **how))
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    wanted = [helper.make_tensor_value_info("rows", TensorProto.INT64, ["kept", 3])]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "suppression", given, wanted, constants)
    opset = [helper.make_opsetid("", 17)]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return made, shapes


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize(
    ("boxes", "batch", "classes", "limits", "how"),
    [
        (20, 1, 1, [5, 0.3], {}),
        (50, 2, 3, [ALL, 0.5, 0.2], {}),
        (64, 1, 2, [7, 0.1, 0.4], {"center_point_box": 1}),
        (33, 2, 2, [0, 0.5], {}),
        (7, 1, 1, [100, 0.0, 0.5], {}),
    ],
)
def test_rows_are_those_of_onnxruntime(boxes, batch, classes, limits, how, chosen):
    model, shapes = suppression(boxes, batch, classes, limits, chosen, **how)
    instance = tvm_rammer.build(model).create()
    rng = np.random.default_rng(0)
    for share in (0.7, 0, 1, 0.02):
        inputs = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
        if chosen:
            inputs["choice"] = (inputs["choice"] < share).astype(np.float32)
        (wanted,) = run_onnxruntime(model, inputs)
        np.testing.assert_array_equal(instance(*inputs.values())[0].numpy(), wanted)
