"""Operators of com.microsoft and integer operators give what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from contributed import CASES, MICROSOFT, case, experts
from node_tests import run_with_tvm

import tvm_rammer
from tvm_rammer.errors import ModelError
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


def _grouped_norm(x: np.ndarray, groups: int, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Of channels that are last, then activated."""
    parts = np.moveaxis(x, -1, 1).reshape(len(x), groups, -1)
    mean, deviation = parts.mean(2, keepdims=True), np.sqrt(parts.var(2, keepdims=True) + 1e-3)
    normal = np.moveaxis(((parts - mean) / deviation).reshape(np.moveaxis(x, -1, 1).shape), 1, -1)
    value = normal * gamma + beta
    return value / (1 + np.exp(-value))


@pytest.mark.parametrize("last", [1, 0])
@pytest.mark.parametrize("skip", [(2, 3, 4, 6), (2, 6), None])
def test_norms_of_groups(last: int, skip: tuple[int, ...] | None) -> None:
    """ONNX Runtime has kernels of them, and of what follows here, for GPUs only."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4, 6)).astype("float32")
    gamma, beta, bias = rng.normal(size=(3, 6)).astype("float32")
    options = {"groups": 2, "epsilon": 1e-3, "activation": 1, "channels_last": last}

    def placed(value: np.ndarray) -> np.ndarray:
        return value if last or value.ndim < 4 else np.ascontiguousarray(np.moveaxis(value, -1, 1))

    if skip is None:
        example, total = case("GroupNorm", placed(x), gamma, beta, **options), x
    else:
        added = rng.normal(size=skip).astype("float32")
        total = x + bias + (added if added.ndim == 4 else added[:, None, None])
        operands = placed(x), gamma, beta, placed(added), bias
        example = case("SkipGroupNorm", *operands, outputs=2, **options)
    found = run_with_tvm(example.model, list(example.inputs.values()))
    wanted = [placed(_grouped_norm(total, 2, gamma, beta)), placed(total)]
    for one, other in zip(found, wanted, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_sums_of_three_split_gelus_and_convolutions_with_channels_last() -> None:
    rng = np.random.default_rng(0)
    x, skip = rng.normal(size=(2, 2, 5, 8)).astype("float32")
    bias = rng.normal(size=8).astype("float32")
    (found,) = run_with_tvm(case("BiasAdd", x, bias, skip).model, [x, bias, skip])
    np.testing.assert_allclose(found, x + bias + skip, rtol=1e-6)
    (found,) = run_with_tvm(case("BiasSplitGelu", x, bias).model, [x, bias])
    left, right = np.split(x + bias, 2, axis=-1)
    (gelu,) = run_onnxruntime(case("Gelu", right).model, {"x0": right})
    np.testing.assert_allclose(found, left * gelu, rtol=1e-5, atol=1e-6)
    image, kernel = rng.normal(size=(1, 5, 6, 4)), rng.normal(size=(3, 4, 3, 3))
    operands = [each.astype("float32") for each in (image, kernel)]
    options = {"pads": [1, 1, 1, 1], "strides": [2, 1]}
    (found,) = run_with_tvm(case("NhwcConv", *operands, **options).model, operands)
    first = [np.ascontiguousarray(np.moveaxis(operands[0], -1, 1)), operands[1]]
    plain = case("Conv", *first, domain="", **options)
    (wanted,) = run_onnxruntime(plain.model, plain.inputs)
    np.testing.assert_allclose(found, np.moveaxis(wanted, 1, -1), rtol=1e-5, atol=1e-5)


def test_whatexperts_cannot_do_is_said() -> None:
    example = experts(3, 2, use_sparse_mixer=1)
    with pytest.raises(ModelError, match="its use_sparse_mixer is 1, and only 0 is known"):
        tvm_rammer.build(example.model)
    with pytest.raises(ModelError, match="its activation 'relu2' is not known"):
        tvm_rammer.build(experts(3, 2, activation_type="relu2").model)
    with pytest.raises(ModelError, match="it has no weights 5"):
        tvm_rammer.build(experts(3, 2, activation_type="swiglu").model)


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
