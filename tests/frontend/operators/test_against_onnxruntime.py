"""Operators of com.microsoft and integer operators give what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from contributed import CASES, MICROSOFT, case
from node_tests import run_with_tvm

import tvm_rammer
from tvm_rammer.runtime.onnx_reference import run_onnxruntime

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_what_onnxruntime_gives(name: str) -> None:
    example = CASES[name]()
    expected = run_onnxruntime(example.model, example.inputs)
    found = run_with_tvm(example.model, list(example.inputs.values()))
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        if one.dtype.kind in "iu":
            difference = np.abs(one.astype(np.int64) - other.astype(np.int64))
            assert difference.max(initial=0) <= example.steps
        else:
            scale = np.abs(other).max(initial=0)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6 * scale)


def test_packed_queries_keys_and_values_are_those_given_one_by_one() -> None:
    """Of a processor's kernels ONNX Runtime has none for them."""
    packed = np.random.default_rng(0).normal(size=(2, 3, 2, 3, 4)).astype(np.float32)
    apart = [packed[:, :, :, number].reshape(2, 3, 8) for number in range(3)]
    together = case("MultiHeadAttention", packed, num_heads=2)
    separate = case("MultiHeadAttention", *apart, num_heads=2)
    (found,) = run_with_tvm(together.model, [packed])
    (expected,) = run_with_tvm(separate.model, apart)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_types_are_known_behind_operators_of_microsoft_in_old_models() -> None:
    """Exporters write LayerNormalization and FastGelu into version 13, without any types."""
    make = onnx.helper.make_node
    floats, size = onnx.TensorProto.FLOAT, (1, 4, 8)
    nodes = [
        make("SkipLayerNormalization", ["x", "x", "scale"], ["a"], domain=MICROSOFT),
        make("FastGelu", ["a"], ["b"], domain=MICROSOFT),
        make("SkipLayerNormalization", ["b", "x", "scale"], ["c"], domain=MICROSOFT),
        make("LayerNormalization", ["c", "scale"], ["d"]),
        make("SkipSimplifiedLayerNormalization", ["d", "x", "scale"], ["y"], domain=MICROSOFT),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "old",
        [onnx.helper.make_tensor_value_info("x", floats, size)],
        [onnx.helper.make_tensor_value_info("y", floats, size)],
        [onnx.numpy_helper.from_array(np.linspace(1, 2, 8, dtype="float32"), "scale")],
    )
    opsets = [onnx.helper.make_opsetid("", 13), onnx.helper.make_opsetid(MICROSOFT, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    (expected,) = run_onnxruntime(model, {"x": x})
    (found,) = run_with_tvm(model, [x])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_reshape_of_version_1_has_its_shape_as_an_attribute() -> None:
    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Reshape", ["x"], ["y"], shape=[0, -1])],
        "graph",
        [onnx.helper.make_tensor_value_info("x", floats, (2, 3, 4))],
        [onnx.helper.make_tensor_value_info("y", floats, (2, 12))],
    )
    opsets = [onnx.helper.make_opsetid("", 4)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=3)
    module = tvm_rammer.build(model, "llvm", policy="sequential", num_veus=1).create()
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output(0).numpy(), x.reshape(2, 12))
