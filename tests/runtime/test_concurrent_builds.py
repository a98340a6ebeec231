"""Threads that build at the same time take turns, and nothing of one is another's."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tvm_rammer


def model(number: int) -> onnx.ModelProto:
    weight = np.full((3, 4), number, "float32")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "threads",
        [helper.make_tensor_value_info("x", floats, [2, 3])],
        [helper.make_tensor_value_info("y", floats, [2, 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_threads_build_and_standard_output_stays():
    before, x = sys.stdout, np.full((2, 3), 0.1, "float32")

    def built(number: int) -> np.ndarray:
        library = tvm_rammer.build(model(number), policy="sequential", num_veus=1)
        return library.replan(policy="wavefront").create()(x)[0].numpy()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(built, range(6)))
    assert sys.stdout is before
    for number, got in enumerate(found):
        np.testing.assert_allclose(got, np.tanh(np.full((2, 4), 0.3 * number)), rtol=1e-5)
