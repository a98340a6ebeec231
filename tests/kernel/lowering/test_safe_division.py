"""Integers are divided by anything, with numpy's results; without the pass, zero stops us."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper
from tvm import te, tirx

import tvm_rammer
from tvm_rammer.kernel.lowering.safe_division import SafeDivision

TYPES = {
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of what may be special; 37 more so that vectors have a remainder."""
    info = np.iinfo(dtype)
    special = np.unique(np.array([info.min, info.min + 1, 0, 1, 7, info.max], dtype))
    special = np.append(special, np.array([-1, -7], dtype)) if info.min else special
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    some = np.random.default_rng(0).integers(info.min, info.max, (2, 37), dtype)
    some[1, ::5] = 0
    return tuple(np.concatenate([pairs, some], axis=1).astype(dtype))


def expected(operator: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        if operator == "Mod":
            return np.mod(a, b)
        remainder = np.fmod(a, b)
        if operator == "fmod":
            return remainder
        # What is left over is taken away first: numpy's own quotient is rounded down.
        return np.where(b == 0, 0, np.floor_divide(a - remainder, b)).astype(a.dtype)


def model(operator: str, dtype: str, count: int):
    name, attributes = ("Mod", {"fmod": 1}) if operator == "fmod" else (operator, {})
    node = helper.make_node(name, ["a", "b"], ["c"], **attributes)
    *inputs, output = (helper.make_tensor_value_info(n, TYPES[dtype], [count]) for n in "abc")
    graph = helper.make_graph([node], "divide", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("operator", ["Div", "Mod", "fmod"])
@pytest.mark.parametrize("dtype", TYPES)
def test_integers_divided_by_anything(operator, dtype):
    a, b = operands(dtype)
    graph = tvm_rammer.build(model(operator, dtype, len(a)), policy="sequential").create()
    graph.run(a=a, b=b)
    np.testing.assert_array_equal(graph.get_output(0).numpy(), expected(operator, a, b))


def test_sizes_and_floating_point_numbers_divide_as_they_did():
    x = te.placeholder((12,), "float32", name="x")
    rows = te.compute((12,), lambda i: x[i // 4] / x[i % 4], "rows")
    module = tvm.IRModule({"main": te.create_prim_func([x, rows])})
    assert tvm_ffi.structural_equal(SafeDivision()(module), module)


def test_a_divisor_that_was_loaded_before():
    x = tirx.decl_buffer((12,), "int32", "x")
    y = tirx.decl_buffer((12,), "int32", "y")
    place, loaded, twice = (tirx.Var(name, "int32") for name in ("place", "loaded", "twice"))
    body = [
        tirx.Bind(loaded, x[place]),
        tirx.Bind(twice, loaded * 2),
        tirx.BufferStore(y, tirx.truncdiv(place, twice), [place]),
    ]
    bounds = (tirx.const(0, "int32"), tirx.const(12, "int32"))
    loop = tirx.For(place, *bounds, tirx.ForKind.SERIAL, tirx.SeqStmt(body))
    module = tvm.IRModule({"main": tirx.PrimFunc([x, y], loop)})
    assert "T.Select(twice == 0 or twice == -1, 1, twice)" in SafeDivision()(module).script()


def test_a_divisor_that_is_data_is_never_divided_by_as_it_is():
    x = te.placeholder((12,), "int32", name="x")
    quotient = te.compute((12,), lambda i: tirx.truncdiv(i, x[i]), "quotient")
    module = tvm.IRModule({"main": te.create_prim_func([x, quotient])})
    assert "T.Select(x[v_i] == 0 or x[v_i] == -1, 1, x[v_i])" in SafeDivision()(module).script()
