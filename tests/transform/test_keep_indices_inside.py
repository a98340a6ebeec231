"""Indices out of range stand for the nearest: no foreign memory is read or written."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax, tirx

import tvm_rammer
from tvm_rammer.transform.keep_indices_inside import KeepIndicesInside

DATA = np.arange(120, dtype="float32").reshape(4, 5, 6)
#: What int32 cannot say is cut down to what it can.
WILD = np.array([2**63 - 1, -(2**63), 4, 5, 6, -5, -6, -7, 3, 0, -1, 2, 2**31, -(2**31) - 1])


def wild(dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.clip(WILD, limits.min, limits.max).astype(dtype)


def model(operator: str, indices: np.ndarray, updates: np.ndarray | None, attributes: Any) -> Any:
    floats = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("data", floats, DATA.shape)]
    dtype = helper.np_dtype_to_tensor_dtype(indices.dtype)
    inputs.append(helper.make_tensor_value_info("indices", dtype, indices.shape))
    if updates is not None:
        inputs.append(helper.make_tensor_value_info("updates", floats, updates.shape))
    node = helper.make_node(operator, [info.name for info in inputs], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", floats, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def assert_inside(
    operator: str, indices: np.ndarray, extents: Any, updated: Any = None, **attributes: Any
) -> None:
    """The result for wild indices is ONNX Runtime's, which refuses them, for the nearest."""
    # A negative index counts from the end, and is the first element if it counts too far.
    nearest = np.clip(indices, -np.array(extents), np.array(extents) - 1).astype(indices.dtype)
    updates = None if updated is None else -1 - np.arange(np.prod(updated), dtype="float32")
    values = {"data": DATA, "indices": nearest}
    if updates is not None:
        values["updates"] = updates = updates.reshape(updated)
    proto = model(operator, indices, updates, attributes)
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, values)
    instance = tvm_rammer.build(proto, policy="sequential").create()
    for some in (nearest, indices):
        instance.run(**{**values, "indices": some})
        np.testing.assert_array_equal(instance.get_output(0).numpy(), want)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis, dtype):
    indices = np.resize(wild(dtype), DATA.shape)
    assert_inside("GatherElements", indices, DATA.shape[axis], axis=axis)


@pytest.mark.parametrize("batch_dims", [0, 1])
@pytest.mark.parametrize("places", [1, 2])
def test_gather_nd(batch_dims, places):
    indices = np.resize(WILD, (4, 7, places))
    extents = DATA.shape[batch_dims:][:places]
    assert_inside("GatherND", indices, extents, batch_dims=batch_dims)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_elements(axis, dtype):
    shape = list(DATA.shape)
    shape[axis] = 2
    # Two different rows: the order of updates of one element is not defined.
    low, high = np.array([-(2**30), -7]), np.array([2**30, 7])
    indices = np.resize(np.stack([low, high], 1), [*shape[:axis], *shape[axis + 1 :], 2])
    indices = np.moveaxis(indices, -1, axis).astype(dtype)
    assert_inside("ScatterElements", indices, DATA.shape[axis], shape, axis=axis)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reach", [(1, 5, 6), (4, 3, 6), (4, 5, 1), (2, 2, 3), (0, 5, 0)])
def test_scatter_elements_that_reach_a_part(reach, axis):
    """Along the axis is one index: two could be for one element, in an order not defined."""
    shape = [1 if k == axis else size for k, size in enumerate(reach)]
    indices = np.resize(WILD, shape)
    assert_inside("ScatterElements", indices, DATA.shape[axis], shape, axis=axis)


@pytest.mark.parametrize("reduction", ["add", "mul", "min", "max"])
def test_scatter_elements_that_are_combined(reduction):
    indices = np.resize(WILD, (3, 9, 4))
    updated = {"axis": 1, "reduction": reduction}
    assert_inside("ScatterElements", indices, DATA.shape[1], indices.shape, **updated)


def test_scatter_nd():
    indices = np.array([[2**30, -(2**30)], [-(2**30), 7], [2, 3], [-2, -2]])
    assert_inside("ScatterND", indices, DATA.shape[:2], [4, 6])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gather(dtype):
    assert_inside("Gather", wild(dtype), 5, axis=1)


@pytest.mark.parametrize(("dtype", "extent"), [("int8", 300), ("int16", 40000)])
def test_indices_of_few_bits(dtype, extent):
    """The last place of an axis may be more than such an index can say."""
    data = relax.Var("data", relax.TensorType((extent, 2), "float32"))
    indices = relax.Var("indices", relax.TensorType((4, 2), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [data, indices]):
        with builder.dataflow():
            found = builder.emit_output(relax.op.gather_elements(data, indices, 0))
        builder.emit_func_output(found)
    bindings = KeepIndicesInside()(builder.get())["main"].body.blocks[0].bindings
    names = [binding.value.op.name for binding in bindings]
    assert names == ["relax.minimum", "relax.maximum", "relax.gather_elements"]


def dynamic(name: str, arguments: list[tuple[tuple[Any, ...], str]], **attributes: Any) -> Any:
    """A module of one operator, with sizes that are known when it runs."""
    params = [
        relax.Var(f"x{number}", relax.TensorType(shape, dtype))
        for number, (shape, dtype) in enumerate(arguments)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            found = builder.emit_output(getattr(relax.op, name)(*params, **attributes))
        builder.emit_func_output(found)
    return tvm_rammer.build(builder.get())


def run(library: Any, *values: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, values)).numpy()


N, M, K = (tirx.Var(name, "int64") for name in "nmk")
FLOATS = ((N, M, K), "float32")


def test_sizes_of_run_time_gather_elements():
    library = dynamic("gather_elements", [FLOATS, ((N, M, K), "int64")], axis=1)
    indices = np.resize(WILD, DATA.shape)
    want = np.take_along_axis(DATA, np.clip(indices, 0, 4), 1)
    np.testing.assert_array_equal(run(library, DATA, indices), want)


def test_sizes_of_run_time_gather_nd():
    library = dynamic("gather_nd", [FLOATS, ((9, 2), "int64")])
    indices = np.resize(WILD, (9, 2))
    rows, columns = np.clip(indices, 0, [3, 4]).T
    np.testing.assert_array_equal(run(library, DATA, indices), DATA[rows, columns])


def test_sizes_of_run_time_take():
    library = dynamic("take", [FLOATS, ((14,), "int64")], axis=1, mode="fast")
    want = DATA[:, np.clip(WILD, 0, 4)]
    np.testing.assert_array_equal(run(library, DATA, WILD), want)


def test_sizes_of_run_time_scatter_elements():
    updates = ((N, 1, K), "float32")
    library = dynamic("scatter_elements", [FLOATS, ((N, 1, K), "int64"), updates], axis=1)
    indices = np.resize(WILD, (4, 1, 6))
    values = -1 - np.arange(24, dtype="float32").reshape(4, 1, 6)
    want = DATA.copy()
    np.put_along_axis(want, np.clip(indices, -5, 4), values, 1)
    np.testing.assert_array_equal(run(library, DATA, indices, values), want)


def test_sizes_of_run_time_scatter_nd():
    library = dynamic("scatter_nd", [FLOATS, ((2, 1), "int64"), ((2, M, K), "float32")])
    values = -1 - np.arange(60, dtype="float32").reshape(2, 5, 6)
    want = DATA.copy()
    want[[0, 3]] = values
    indices = np.array([[-(2**63)], [2**63 - 1]])
    np.testing.assert_array_equal(run(library, DATA, indices, values), want)


EMPTY = ((0, 3), "float32")


def test_nothing_is_read_from_an_empty_tensor():
    for name, options in (("gather_elements", {"axis": 0}), ("take", {"axis": 0, "mode": "fast"})):
        shape = (2, 3) if name == "gather_elements" else (2,)
        found = run(
            dynamic(name, [EMPTY, (shape, "int64")], **options),
            np.zeros((0, 3), "float32"),
            np.ones(shape, "int64"),
        )
        np.testing.assert_array_equal(found, np.zeros((2, 3)))


def test_nothing_is_written_to_an_empty_tensor():
    library = dynamic("scatter_elements", [EMPTY, ((2, 3), "int64"), ((2, 3), "float32")], axis=0)
    values = np.zeros((0, 3), "float32"), np.ones((2, 3), "int64"), np.ones((2, 3), "float32")
    assert run(library, *values).shape == (0, 3)


READERS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "take": ((3,), {"axis": 0, "mode": "fast"}),
    "gather_elements": ((3, 3), {"axis": 0}),
    "gather_nd": ((3, 1), {}),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_nothing_is_read_from_what_the_run_finds_empty(name, dtype):
    shape, options = READERS[name]
    library = dynamic(name, [((N, 3), dtype), (shape, "int64")], **options)
    indices = np.resize([0, 1, 2**62], shape)
    found = run(library, np.ones((0, 3), dtype), indices)
    np.testing.assert_array_equal(found, np.zeros((3, 3), dtype))
    found = run(library, np.ones((2, 3), dtype), indices)
    np.testing.assert_array_equal(found, np.ones((3, 3), dtype))


@pytest.mark.parametrize("name", ["scatter_elements", "scatter_nd"])
def test_nothing_is_written_to_what_the_run_finds_empty(name):
    by_element = name == "scatter_elements"
    shape, options = ((2, 3), {"axis": 0}) if by_element else ((2, 1), {})
    arguments = [((N, 3), "float32"), (shape, "int64"), ((2, 3), "float32")]
    library = dynamic(name, arguments, **options)
    indices, updates = np.resize([-1, 0], shape[::-1]).T, np.ones((2, 3), "float32")
    assert run(library, np.zeros((0, 3), "float32"), indices, updates).shape == (0, 3)
    assert (
        run(library, np.zeros((3, 3), "float32"), indices * by_element, updates)[-1].tolist()
        == [float(by_element)] * 3
    )


SLICES = [
    ([0, 0, 0], [4, 5, 6], [1, 1, 1]),
    ([3, -1, 2**31], [0, -(2**63), 1], [-1, -2, -1]),
    ([2, 4, 5], [1, 0, 5], [1, 2, 3]),
    ([0, 0, 0], [3, 3, 3], [-1, -1, 1]),
    ([-(2**62), 2**62, -3], [2**62, -(2**62), -1], [1, -1, 2]),
]


@pytest.mark.parametrize("shape", [DATA.shape, (N, M, K)])
def test_ends_of_slices_that_lie_before_their_begins(shape):
    places = ((3,), "int64")
    library = dynamic("dynamic_strided_slice", [(shape, "float32"), places, places, places])
    for begin, end, step in SLICES:
        want = DATA[tuple(map(slice, begin, end, step))]
        found = run(library, DATA, *(np.array(each) for each in (begin, end, step)))
        np.testing.assert_array_equal(found, want)


def test_a_step_of_zero_is_one():
    places = ((3,), "int64")
    library = dynamic("dynamic_strided_slice", [FLOATS, places, places, places])
    begin, end, step = np.zeros(3, "int64"), np.array(DATA.shape), np.zeros(3, "int64")
    np.testing.assert_array_equal(run(library, DATA, begin, end, step), DATA)
