"""SplitToSequence gives the parts that its sizes say, also where these are data."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_rammer
from tvm_rammer import load_model
from tvm_rammer.errors import ModelError

RNG = np.random.default_rng(0)


def model(
    shape: tuple[int, ...],
    count: int,
    split: np.ndarray | None,
    is_constant: bool = True,
    **attributes: Any,
) -> onnx.ModelProto:
    """The parts, one output for each."""
    names = ["x", "split"] if split is not None else ["x"]
    nodes = [helper.make_node("SplitToSequence", names, ["parts"], "node", **attributes)]
    nodes += [
        helper.make_node("SequenceAt", ["parts", f"place{n}"], [f"y{n}"]) for n in range(count)
    ]
    constants = [numpy_helper.from_array(np.array(n), f"place{n}") for n in range(count)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if split is not None and is_constant:
        constants.append(numpy_helper.from_array(split, "split"))
    elif split is not None:
        kind = helper.np_dtype_to_tensor_dtype(split.dtype)
        inputs.append(helper.make_tensor_value_info("split", kind, split.shape))
    outputs = [
        helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, None) for n in range(count)
    ]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(made: onnx.ModelProto, expected: list[np.ndarray], *inputs: np.ndarray) -> None:
    found = tvm_rammer.build(made, "llvm", policy="sequential").create()(*inputs)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 10, 12])
@pytest.mark.parametrize("axis", [1, -1])
def test_parts_of_one_size_but_for_the_last(size, axis):
    """TVM made two parts of 5 of an axis of 10 whose parts have 7."""
    x = RNG.standard_normal((2, 10)).astype("float32")
    expected = [x[:, start : start + size] for start in range(0, 10, size)]
    check(model(x.shape, len(expected), np.array(size), axis=axis), expected, x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("sizes", [(4,), (1, 3), (2, 1, 1), (3, 0, 1)])
def test_parts_of_given_sizes(sizes, dtype):
    x = RNG.standard_normal((4, 3)).astype("float32")
    expected = np.split(x, np.cumsum(sizes)[:-1])
    check(model(x.shape, len(sizes), np.array(sizes, dtype)), expected, x)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_parts_of_one_place(keepdims):
    x = RNG.standard_normal((2, 3, 2)).astype("float32")
    expected = np.split(x, 3, 1) if keepdims else [x[:, place] for place in range(3)]
    check(model(x.shape, 3, None, axis=1, keepdims=keepdims), expected, x)
    ones = np.array(1)
    check(model(x.shape, 3, ones, axis=1, keepdims=keepdims), np.split(x, 3, 1), x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_sizes_that_are_data(axis, dtype):
    x = RNG.standard_normal((7, 7)).astype("float32")
    made = model(x.shape, 3, np.zeros(3, dtype), is_constant=False, axis=axis)
    instance = tvm_rammer.build(made, "llvm", policy="sequential").create()
    for sizes in ((2, 4, 1), (1, 1, 5), (3, 0, 4)):
        found = instance(x, np.array(sizes, dtype))
        for one, other in zip(found, np.split(x, np.cumsum(sizes)[:-1], axis), strict=True):
            np.testing.assert_array_equal(one.numpy(), other)
    with pytest.raises(Exception, match="7"):
        instance(x, np.array([4, 4, 4], dtype))


def test_parts_that_are_computed_with():
    """What is joined again in another order."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "split"], ["parts"]),
        helper.make_node("SequenceAt", ["parts", "one"], ["second"]),
        helper.make_node("SequenceErase", ["parts", "one"], ["others"]),
        helper.make_node("ConcatFromSequence", ["others"], ["rest"], axis=0),
        helper.make_node("Exp", ["second"], ["e"]),
        helper.make_node("Concat", ["rest", "e"], ["y"], axis=0),
    ]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "graph",
        [tensor("x", TensorProto.FLOAT, (6, 2)), tensor("split", TensorProto.INT64, (3,))],
        [tensor("y", TensorProto.FLOAT, (6, 2))],
        [numpy_helper.from_array(np.array(1), "one")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = RNG.standard_normal((6, 2)).astype("float32")
    expected = np.concatenate([x[:2], x[5:], np.exp(x[2:5])])
    found = tvm_rammer.build(made, "llvm", policy="sequential").create()(x, np.array([2, 3, 1]))
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("split", "is_constant", "reason"),
    [
        (np.array([1, 2]), True, "Sum of split values not equal"),
        (np.array([5, -1]), True, "a part of it would have less than no places"),
        (np.array(0), True, "must be greater than zero"),
        (np.array(2), False, "how many parts it has is known only at run time; fix it with"),
    ],
)
def test_parts_that_there_are_not(split, is_constant, reason):
    with pytest.raises(ModelError, match=rf"SplitToSequence \(node 'node'\).*{reason}"):
        load_model(model((4, 3), 2, split, is_constant))
