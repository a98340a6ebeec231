"""What TVM's importer lowers too early becomes an operator again, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, te, tirx, topi

import tvm_rammer
from tvm_rammer.frontend import load_model
from tvm_rammer.relax_util import operator_name
from tvm_rammer.testing import models
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.restore_operators import RestoreOperators

X = np.random.default_rng(0).standard_normal((1, 4, 5, 6)).astype("float32")
X[0, 1, 2, 3:] = np.nan, np.inf, -np.inf


def model(name: str, opset: int, constants: dict[str, Any], **attributes: Any):
    inputs = ["x", *constants] if constants else ["x"]
    node = helper.make_node(name, inputs, ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(np.asarray(value), n) for n, value in constants.items()]
    graph = helper.make_graph([node], name, [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def operators(mod: tvm.IRModule) -> list[str]:
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    names = [operator_name(binding.value) for binding in bindings]
    return [name.removeprefix("relax.") for name in names if name]


def restored(mod: tvm.IRModule) -> list[str]:
    return [n for n in operators(RestoreOperators()(mod)) if n not in ("isnan", "where")]


def result(onnx_model: Any) -> np.ndarray:
    graph = tvm_rammer.build(onnx_model, policy="sequential").create()
    graph.run(x=X)
    return graph.get_output(0).numpy()


LIMITS = {"lo": np.float32(-0.5), "hi": np.float32(0.5)}


@pytest.mark.parametrize(
    ("opset", "constants", "attributes"),
    [(6, {}, {"min": -0.5, "max": 0.5}), (11, LIMITS, {}), (17, LIMITS, {})],
)
def test_clip_is_a_maximum_and_a_minimum_and_keeps_nan(opset, constants, attributes):
    clip = model("Clip", opset, constants, **attributes)
    assert restored(load_model(clip).module) == ["maximum", "minimum"]
    np.testing.assert_array_equal(result(clip), np.clip(X, -0.5, 0.5))


def test_a_limit_that_is_nan_is_none():
    clip = model("Clip", 17, {"lo": np.float32(np.nan), "hi": np.float32(0.5)})
    np.testing.assert_array_equal(result(clip), np.clip(X, None, 0.5))


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_constant_padding(value):
    constants = {"pads": np.array([0, 1, 2, 0, 0, 0, 1, 3]), "value": np.float32(value)}
    pad = model("Pad", 13, constants)
    assert restored(load_model(pad).module) == ["nn.pad"]
    want = np.pad(X, ((0, 0), (1, 0), (2, 1), (0, 3)), constant_values=value)
    np.testing.assert_array_equal(result(pad), want)


def test_padding_that_takes_away():
    pad = model("Pad", 13, {"pads": np.array([0, 0, -1, 1, 0, 0, 0, -2])})
    want = np.pad(X, ((0, 0), (0, 0), (0, 0), (1, 0)))[:, :, 1:, :-2]
    np.testing.assert_array_equal(result(pad), want)


def test_the_clip_after_a_convolution_is_part_of_it():
    g = models.GraphBuilder("relu6")
    value = g.input("x", (1, 8, 8, 8))
    for _ in range(2):
        value = g.op("Conv", value, g.weight((8, 8, 3, 3), 0.2), pads=[1] * 4)
        value = g.op("Clip", value, g.constant(np.float32(0)), g.constant(np.float32(6)))
    g.output("y", value)
    prepared = Prepare()(load_model(g.build()).module)
    calls = [b.value for block in prepared["main"].body.blocks for b in block.bindings]
    names = [call.args[0].name_hint for call in calls if operator_name(call)]
    assert names[0] == "transpose"
    clipped = "fused_conv2d_maximum_minimum"
    assert [name.rstrip("0123456789") for name in names[1:-1]] == [clipped, clipped]
    tvm.ir.assert_structural_equal(Prepare()(prepared), prepared)


SYMBOLIC = (tirx.Var("n", "int64"),)


def call_of(compute: Any, shape: Any = (3, 4), operands: int = 1) -> tvm.IRModule:
    """A function that calls a PrimFunc of one or two operands of a shape."""
    x = [relax.Var(f"x{k}", relax.TensorType(shape, "float32")) for k in range(operands)]
    builder = relax.BlockBuilder()
    with builder.function("main", x):
        with builder.dataflow():
            output = builder.emit_output(builder.call_te(compute, *x))
        builder.emit_func_output(output)
    return builder.get()


def shifted_maximum(x: te.Tensor) -> te.Tensor:
    return te.compute((3, 4), lambda i, j: tirx.max(x[2 - i, j], 0.0))


def window(x: te.Tensor) -> te.Tensor:
    def inside(i: Any, j: Any) -> Any:
        return tirx.if_then_else(tirx.all(j >= 1, j < 4), x[i, j - 1], 0.0)

    return te.compute((3, 5), inside)


@pytest.mark.parametrize(
    ("reason", "mod"),
    [
        ("rows in another order", call_of(shifted_maximum)),
        ("two steps", call_of(lambda x: topi.exp(topi.maximum(x, 0.0)))),
        ("one column less than there is", call_of(window)),
        ("rows that repeat", call_of(lambda x: topi.nn.mirror_pad(x, [0, 1], [0, 1]))),
        ("a size that is not known", call_of(lambda x: topi.maximum(x, 0.0), SYMBOLIC)),
        ("a sum", call_of(topi.add, operands=2)),
    ],
)
def test_what_is_something_else_stays(reason, mod):
    assert RestoreOperators()(mod).same_as(mod), reason


def test_maxima_of_two_tensors():
    assert restored(call_of(topi.maximum, operands=2)) == ["maximum"]
    assert restored(call_of(topi.minimum, operands=2)) == ["minimum"]
