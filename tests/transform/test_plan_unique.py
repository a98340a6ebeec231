"""Different elements and slices: what ONNX Runtime and numpy give, without numpy where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import ModelProto, TensorProto, helper
from tvm import relax, tirx

import tvm_rammer
from tvm_rammer.transform.plan_unique import PlanUnique

RNG = np.random.default_rng(0)
#: With many that are equal, all different, one, and of rows that differ in their last element.
VALUES = {
    "some": RNG.integers(0, 3, (4, 5, 3)),
    "all": RNG.permutation(60).reshape(4, 5, 3),
    "one": np.zeros((1, 1, 1)),
    "rows": np.concatenate([np.zeros((6, 6, 6)), RNG.integers(0, 2, (6, 6, 1))], 2),
}


def model(shape: tuple[int, ...], dtype: str, **attributes: int) -> ModelProto:
    node = helper.make_node("Unique", ["x"], ["values", "first", "which", "counts"], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    kinds = [kind, *[TensorProto.INT64] * 3]
    outputs = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(node.output, kinds, strict=True)
    ]
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "given"),
    [("float32", "some"), ("int64", "all"), ("float64", "one"), ("int8", "rows")],
)
def test_they_are_onnx_runtimes(dtype, given, in_order, axis):
    x = VALUES[given].astype(dtype)
    where = {} if axis is None else {"axis": axis}
    proto = model(x.shape, dtype, sorted=in_order, **where)
    library = tvm_rammer.build(proto)
    assert "relax.run" not in library.executable.as_text()
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    for found, want in zip(library.create()(x), wanted, strict=True):
        assert found.numpy().dtype == want.dtype
        np.testing.assert_array_equal(found.numpy(), want)


def run_relax(x: np.ndarray, shape: tuple[Any, ...], **flags: Any) -> list[np.ndarray]:
    parameter = relax.Var("x", relax.TensorType(shape, x.dtype.name))
    builder = relax.BlockBuilder()
    with builder.function("main", [parameter]):
        with builder.dataflow():
            found = builder.emit_output(relax.op.unique(parameter, **flags))
        builder.emit_func_output(found)
    machine = relax.VirtualMachine(tvm_rammer.build(builder.get()).executable, tvm.cpu())
    results = machine["main"](tvm.runtime.tensor(x))
    return [each.numpy() for each in ([results] if hasattr(results, "numpy") else results)]


def test_what_is_no_number_is_one_value_and_the_last():
    x = np.array([2, np.nan, -np.inf, 1, np.nan, np.inf, 1], "float32")
    flags = {"return_index": True, "return_inverse": True, "return_counts": True}
    wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for got, want in zip(run_relax(x, x.shape, **flags), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32"])
def test_sizes_of_run_time(dtype):
    sizes = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    for shape in [(3, 5), (1, 1), (40, 30)]:
        x = RNG.integers(0, 9, shape).astype(dtype)
        (found,) = run_relax(x, sizes)
        np.testing.assert_array_equal(found, np.unique(x))


def test_slices_whose_sizes_only_the_run_tells_stay_tvms():
    x = RNG.integers(0, 2, (6, 2)).astype("float32")
    sizes = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    (found,) = run_relax(x, sizes, axis=0)
    np.testing.assert_array_equal(found, np.unique(x, axis=0))


def test_of_nothing_there_is_nothing():
    (found,) = run_relax(np.zeros((0, 3), "float32"), (tirx.Var("n", "int64"), 3))
    assert found.shape == (0,)


def test_a_module_without_any_stays_as_it_is():
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    module = builder.get()
    assert PlanUnique()(module).same_as(module)
