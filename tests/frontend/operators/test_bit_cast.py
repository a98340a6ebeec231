"""BitCast gives elements of the same bits, of 16-bit floats too, which are computed in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from one_operator import compiled, fed, one_operator
from onnx import TensorProto, helper

from tvm_rammer import load_model
from tvm_rammer.errors import ModelError

RNG = np.random.default_rng(0)
_TYPES = {
    1: ("int8", "uint8"),
    2: ("bfloat16", "float16", "int16", "uint16"),
    4: ("float32", "int32", "uint32"),
    8: ("float64", "int64", "uint64"),
}
PAIRS = [(x, y) for types in _TYPES.values() for x in types for y in types]


@pytest.mark.parametrize(("given", "wanted"), PAIRS)
def test_bits_stay(given, wanted):
    x = RNG.integers(0, 256, (3, 5 * np.dtype(given).itemsize), "uint8")
    # The highest exponent is that of numbers that are none.
    x[:, np.dtype(given).itemsize - 1 :: np.dtype(given).itemsize] &= 0xBB
    x = x.view(given)
    model = one_operator("BitCast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(wanted)))
    (found,) = compiled(model, {"x0": x})
    assert found.dtype == wanted and found.shape == x.shape
    np.testing.assert_array_equal(found.view("uint8"), x.view("uint8"))


def test_a_byte_is_true_unless_it_is_0():
    x = np.array([0, 1, 1, 0], "uint8")
    model = one_operator("BitCast", [x], to=TensorProto.BOOL)
    assert compiled(model, {"x0": x})[0].tolist() == [False, True, True, False]
    x = np.array([[True], [False]])
    model = one_operator("BitCast", [x], to=TensorProto.INT8)
    assert compiled(model, {"x0": x})[0].tolist() == [[1], [0]]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_bits_of_what_is_computed_in_float32(kind):
    """A sum is rounded before its bits are read; bits are computed with as the float they are."""
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    half = helper.np_dtype_to_tensor_dtype(dtype)
    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"]),
        helper.make_node("BitCast", ["sum"], ["bits"], to=TensorProto.UINT16),
        helper.make_node("BitwiseXor", ["bits", "sign"], ["turned"]),
        helper.make_node("BitCast", ["turned"], ["negative"], to=half),
        helper.make_node("Mul", ["negative", "x"], ["y"]),
    ]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "graph",
        [tensor("x", half, (7,)), tensor("sign", TensorProto.UINT16, ())],
        [tensor("bits", TensorProto.UINT16, (7,)), tensor("y", half, (7,))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=10)
    x = RNG.standard_normal(7).astype(dtype)
    bits, y = compiled(model, {"x": x, "sign": np.array(0x8000, "uint16")})
    np.testing.assert_array_equal(bits, (x + x).view("uint16"))
    np.testing.assert_array_equal(y, (-(x + x) * x).astype(dtype))


def test_bits_of_a_constant_in_a_branch():
    """What a branch reads of the graph around has the type that it has there."""
    half = TensorProto.FLOAT16
    tensor = helper.make_tensor_value_info
    branches = [
        helper.make_graph(
            [helper.make_node("BitCast", [name], [f"of_{name}"], to=TensorProto.INT16)],
            name,
            [],
            [tensor(f"of_{name}", TensorProto.INT16, (2,))],
        )
        for name in ("x", "c")
    ]
    pick = helper.make_node("If", ["cond"], ["y"], then_branch=branches[0], else_branch=branches[1])
    constant = np.array([1, -2], "float16")
    graph = helper.make_graph(
        [pick],
        "graph",
        [tensor("x", half, (2,)), tensor("cond", TensorProto.BOOL, ())],
        [tensor("y", TensorProto.INT16, (2,))],
        [onnx.numpy_helper.from_array(constant, "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=10)
    x = np.array([0.1, 65504], "float16")
    for cond, read in ((True, x), (False, constant)):
        (found,) = compiled(model, {"x": x, "cond": np.array(cond)})
        np.testing.assert_array_equal(found, read.view("int16"))


def test_a_scalar():
    x = np.array(1.5, "float32")
    model = one_operator("BitCast", [x], to=TensorProto.UINT32)
    assert compiled(model, fed(model, [x]))[0] == x.view("uint32")


@pytest.mark.parametrize(
    ("dtype", "to", "reason"),
    [
        ("float32", TensorProto.INT64, "input type has 32 bits and output type has 64 bits"),
        ("uint8", TensorProto.FLOAT8E4M3FN, "of uint8 cannot become elements of float8e4m3fn"),
        ("float32", TensorProto.STRING, "of float32 cannot become elements of string"),
    ],
)
def test_elements_that_there_are_not(dtype, to, reason):
    with pytest.raises(ModelError, match=rf"BitCast \(node 'node'\).*{reason}"):
        load_model(one_operator("BitCast", [np.zeros(2, dtype)], to=to))
