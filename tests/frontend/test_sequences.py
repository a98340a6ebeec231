"""Sequences of tensors that go by several names."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import tvm_rammer


def test_an_alias_of_a_sequence():
    """TVM's importer went through the alias element by element, without an end."""
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("SequenceInsert", ["none", "x"], ["one"]),
        helper.make_node("Identity", ["one"], ["same"]),
        helper.make_node("SequenceInsert", ["same", "x"], ["two"]),
        helper.make_node("Identity", ["two"], ["all"]),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "sequences",
        [helper.make_tensor_value_info("x", floats, (2, 3))],
        [helper.make_tensor_value_info("y", floats, (4, 3))],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    instance = tvm_rammer.build(model, policy="sequential").create()
    instance.set_input("x", x)
    instance.run()
    np.testing.assert_array_equal(instance.get_output(0).numpy(), np.concatenate([x, x]))
