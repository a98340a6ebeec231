"""Networks of 8 bits: they compute what ONNX defines, and stay with their channels last."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from bench.quantise import quantised
from onnx import TensorProto, helper, numpy_helper

import tvm_rammer
from tvm_rammer.errors import InputError
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs

RNG = np.random.default_rng(0)


def small_network() -> onnx.ModelProto:
    """A branch, a concatenation, a pool, a sum and a product behind convolutions."""
    shapes = {
        "stem": (16, 3, 3, 3),
        "left": (16, 16, 1, 1),
        "right": (16, 16, 3, 3),
        "apart": (32, 1, 3, 3),
        "sum": (32, 32, 1, 1),
    }
    weights = [
        numpy_helper.from_array(RNG.normal(0, 0.4, shape).astype("float32"), name)
        for name, shape in shapes.items()
    ]
    weights.append(numpy_helper.from_array(RNG.normal(0, 1, (32, 10)).astype("float32"), "last"))
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "stem"], ["a"], strides=[2, 2], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "left"], ["c"]),
        node("Conv", ["b", "right"], ["d"], pads=[1] * 4),
        node("Concat", ["c", "d"], ["e"], axis=1),
        node("MaxPool", ["e"], ["f"], kernel_shape=[3, 3], strides=[2, 2]),
        node("Conv", ["f", "apart"], ["g"], pads=[1] * 4, group=32),
        node("Conv", ["g", "sum"], ["h"]),
        node("Add", ["f", "h"], ["i"]),
        node("GlobalAveragePool", ["i"], ["j"]),
        node("Flatten", ["j"], ["k"]),
        node("MatMul", ["k", "last"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 33, 33))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def as_defined(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What a model computes, operator by operator."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


def as_built(model: onnx.ModelProto, x: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """What a build computes, and its operators."""
    library = tvm_rammer.build(model, policy="sequential")
    instance = library.create()
    instance.set_input(next(iter(instance.get_input_info()[0])), x)
    instance.run()
    names = [each.name for program in library.programs.values() for each in program.operators]
    return instance.get_output(0).numpy(), names


@pytest.fixture(scope="module")
def network() -> onnx.ModelProto:
    return quantised(small_network(), random_inputs(small_network()))


def test_a_network_is_between_changes_of_scale(network):
    kinds = Counter(node.op_type for node in network.graph.node)
    assert kinds["QuantizeLinear"] >= 10 and kinds["DequantizeLinear"] > kinds["QuantizeLinear"]
    weights = [each for each in network.graph.initializer if len(each.dims) == 4]
    assert len(weights) == 5 and all(each.data_type == TensorProto.INT8 for each in weights)


def test_a_build_computes_what_onnx_defines(network):
    """Sums in another order may round to a neighbour here and there, and no further."""
    x = random_inputs(network)["x"]
    wanted, (got, _) = as_defined(network, x), as_built(network, x)
    steps = np.abs(got - wanted) / np.diff(np.unique(wanted)).min()
    assert steps.max() < 1.5
    assert np.mean(steps > 0.5) <= 0.2


def test_nothing_is_transposed_between_the_input_and_the_pool(network):
    """And each convolution ends in the steps of its result."""
    _, names = as_built(network, random_inputs(network)["x"])
    (pooled,) = (number for number, name in enumerate(names) if "mean" in name)
    assert not any("transpose" in name for name in names[1 : pooled + 1])
    # One in stages is several.
    convolutions = {name.partition(".")[0] for name in names if "conv2d" in name}
    assert len(convolutions) == 5
    assert all("quantize" in name for name in convolutions)


def test_a_network_that_cannot_be_quantised(monkeypatch):
    def quantize_static(*arguments: object, **options: object) -> None:
        raise ValueError("for some reason")

    monkeypatch.setattr("onnxruntime.quantization.quantize_static", quantize_static)
    with pytest.raises(InputError) as caught:
        quantised(small_network(), random_inputs(small_network()))
    assert str(caught.value) == "ONNX Runtime's tool cannot quantise small: for some reason"


def test_batch_norms_become_part_of_convolutions():
    model = get_model("shufflenet").tiny()
    made = quantised(model, random_inputs(model))
    kinds = Counter(node.op_type for node in made.graph.node)
    assert kinds["Conv"] and not kinds["BatchNormalization"]
