"""Graphs with sizes that are data at run time: what makes them, and what may follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: An end beyond every axis, as exporters write it.
_FAR = 2**62


class Graph:
    """A graph that grows, with values of its inputs for two runs."""

    def __init__(self) -> None:
        self.feeds: tuple[dict[str, np.ndarray], ...] = ({}, {})
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def input(self, *values: Any) -> str:
        """An input with a value for each run."""
        name = f"x{len(self._inputs)}"
        arrays = [np.asarray(value) for value in values]
        kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
        self._inputs.append(helper.make_tensor_value_info(name, kind, arrays[0].shape))
        for feed, array in zip(self.feeds, arrays, strict=True):
            feed[name] = array
        return name

    def floats(self, *shape: int) -> str:
        """An input of which about half is 0."""
        values = np.maximum(0, self._rng.standard_normal((2, *shape))).astype("float32")
        return self.input(*values)

    def constant(self, value: Any, dtype: str = "int64") -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """The first result of an operator."""
        names = [f"{kind}{len(self._nodes)}_{number}" for number in range(results)]
        self._nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names[0]

    def real(self, value: str) -> str:
        return self.op("Cast", value, to=TensorProto.FLOAT)

    def whole(self, value: str) -> str:
        return self.op("Cast", value, to=TensorProto.INT64)

    def model(self, outputs: Iterable[str]) -> onnx.ModelProto:
        wanted = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, "graph", self._inputs, wanted, self._constants)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        typed = onnx.shape_inference.infer_shapes(model).graph
        types = {value.name: value for value in (*typed.value_info, *typed.output)}
        del model.graph.output[:]
        model.graph.output.extend(types[value.name] for value in wanted)
        return model


#: A tensor of floats, and how many axes it has.
Value = tuple[str, int]


def _boxes(g: Graph) -> Value:
    corners = g._rng.random((2, 1, 20, 2)).astype("float32")
    sizes = 0.4 * g._rng.random((2, 1, 20, 2)).astype("float32")
    boxes = g.input(*np.concatenate([corners, corners + sizes], -1))
    scores = g.input(*g._rng.random((2, 1, 2, 20)).astype("float32"))
    limits = g.constant([10]), g.constant([0.5], "float32"), g.constant([0.3], "float32")
    return g.real(g.op("NonMaxSuppression", boxes, scores, *limits)), 2


def _at_most(g: Graph, vector: str, number: int) -> str:
    """The size of a vector, or a number that is less."""
    return g.op("Min", g.op("Shape", vector), g.constant([number]))


def _suppressed(g: Graph, vector: str) -> str:
    """The boxes of equal size that begin where a vector says, without those that overlap."""
    ends = g.op("Add", vector, g.constant(0.7, "float32"))
    corners = (
        g.op("Unsqueeze", each, g.constant([0, -1])) for each in [vector, vector, ends, ends]
    )
    boxes = g.op("Concat", *corners, axis=2)
    scores = g.op("Reshape", g.op("Neg", vector), g.constant([1, 1, -1]))
    limits = g.constant([2**31 - 1]), g.constant([0.1], "float32")
    return g.real(g.op("NonMaxSuppression", boxes, scores, *limits))


def _scattered(g: Graph, vector: str) -> str:
    """Of two pairs of columns the first columns are scattered to."""
    column = g.op("Unsqueeze", vector, g.constant([0, 2]))
    pair = g.op("Concat", column, g.op("Neg", column), axis=2)
    pairs = g.op("Concat", pair, g.op("Exp", pair), axis=0)
    to = g.whole(g.real(g.op("Greater", column, g.constant(0.5, "float32"))))
    first = g.op("ScatterElements", pairs, to, g.op("Sin", column), axis=0)
    last, one = g.constant([[[-1]]]), g.constant([[[5]]], "float32")
    return g.op("ScatterElements", first, last, one, axis=1)


def _replaced(g: Graph, vector: str, kind: str) -> str:
    """What is large in a vector by its negative, at places and by values of other symbols."""
    large = g.op("Greater", vector, g.constant(0.5, "float32"))
    axes = g.constant([-1] if kind == "ScatterElements" else [-1, 1])
    places = g.op("Reshape", g.op("NonZero", large), axes)
    return g.op(kind, vector, places, g.op("Neg", g.op("Compress", vector, large, axis=0)))


def _sizes(first: Sequence[int], second: Sequence[int]) -> Callable[[Graph], str]:
    return lambda g: g.input(np.array(first, np.int64), np.array(second, np.int64))


PRODUCERS: dict[str, Callable[[Graph], Value]] = {
    "nonzero": lambda g: (g.real(g.op("NonZero", g.floats(5, 6))), 2),
    "places": lambda g: (g.real(g.op("Transpose", g.op("NonZero", g.floats(5, 6)))), 2),
    "boxes": _boxes,
    "unique": lambda g: (g.op("Unique", g.floats(12)), 1),
    "unique rows": lambda g: (g.op("Unique", g.op("Ceil", g.floats(12, 2)), axis=0), 2),
    "compress": lambda g: (
        g.op("Compress", g.floats(6, 4), g.op("Cast", g.floats(6), to=TensorProto.BOOL), axis=0),
        2,
    ),
    "range": lambda g: (
        g.real(g.op("Range", *(_sizes(*each)(g) for each in ((0, 1), (7, 4), (2, 1))))),
        1,
    ),
    "range of floats": lambda g: (
        g.op("Range", *(g.input(*np.float32(each)) for each in ((0, 1), (7, 4), (2, 0.7)))),
        1,
    ),
    "expand": lambda g: (g.op("Expand", g.floats(3, 1), _sizes((1, 4), (3, 6))(g)), 2),
    "slice": lambda g: (
        g.op("Slice", g.floats(8, 4), _sizes([-5], [2])(g), _sizes([99], [-1])(g), g.constant([0])),
        2,
    ),
    "tile": lambda g: (g.op("Tile", g.floats(2, 3), _sizes((2, 1), (3, 2))(g)), 2),
    "reshape": lambda g: (g.op("Reshape", g.floats(4, 6), _sizes((3, -1), (0, 6))(g)), 2),
    "constant of shape": lambda g: (g.op("ConstantOfShape", _sizes((3, 4), (2, 3))(g)), 2),
}


def _flat(g: Graph, value: str) -> str:
    return g.op("Reshape", value, g.constant([-1]))


def _outer(g: Graph, kind: str, value: str, rank: int) -> Value:
    sides = (g.op("Unsqueeze", value, g.constant([axis])) for axis in (0, 1))
    return g.op(kind, *sides), rank + 1


def _first_size(g: Graph, value: str) -> str:
    return g.op("Gather", g.op("Shape", value), g.constant(0))


def _slice(*bounds: int) -> Callable[[Graph, str, int], Value]:
    def follow(g: Graph, value: str, rank: int) -> Value:
        start, end, *step = (g.constant([bound]) for bound in bounds)
        return g.op("Slice", value, start, end, g.constant([0]), *step), rank

    return follow


def _reshape(*sizes: int) -> Callable[[Graph, str, int], Value]:
    return lambda g, v, rank: (g.op("Reshape", v, g.constant(sizes)), len(sizes))


def _other(g: Graph) -> str:
    """A vector of another size, which is 1 at run time."""
    taken = g.input(np.array([True, False]), np.array([False, True]))
    return g.op("Compress", g.floats(2), taken, axis=0)


#: What follows a tensor of floats that has one axis at least.
CONSUMERS: dict[str, Callable[[Graph, str, int], Value]] = {
    "flat": _reshape(-1),
    "column": _reshape(-1, 1),
    "same and rest": _reshape(0, -1),
    "three axes": _reshape(1, -1, 1),
    "Flatten": lambda g, v, r: (g.op("Flatten", v, axis=r - 1), 2),
    "Unsqueeze": lambda g, v, r: (g.op("Unsqueeze", v, g.constant([0, -1])), r + 2),
    "Squeeze": lambda g, v, r: (
        (
            g.op("Squeeze", _slice(0, 1)(g, v, r)[0], g.constant([0])),
            max(1, r - 1),
        )
        if r > 1
        else (g.op("Unsqueeze", v, g.constant([0])), 2)
    ),
    "Gather": lambda g, v, r: (g.op("Gather", v, g.constant([-1, 0]), axis=r - 1), r),
    "Gather by it": lambda g, v, r: (g.op("Gather", g.floats(30, 2), g.whole(v)), r + 1),
    "GatherND by it": lambda g, v, r: (
        g.op("GatherND", g.floats(30, 2), g.op("Unsqueeze", g.whole(v), g.constant([-1]))),
        r + 1,
    ),
    "but the first": _slice(1, _FAR),
    "but the last": _slice(0, -1),
    "last two": _slice(-2, _FAR),
    "first hundred": _slice(0, 100),
    "backwards": _slice(-1, -_FAR, -1),
    "every second": _slice(0, _FAR, 2),
    "Concat": lambda g, v, r: (g.op("Concat", v, v, axis=-1), r),
    "Concat of two": lambda g, v, r: (g.op("Concat", _flat(g, v), _other(g), axis=0), 1),
    "Concat of parts": lambda g, v, r: (
        g.op("Concat", _slice(0, 1)(g, v, r)[0], _slice(1, _FAR)(g, v, r)[0], axis=0),
        r,
    ),
    "Transpose": lambda g, v, r: (g.op("Transpose", v), r),
    "ReduceSum": lambda g, v, r: (g.op("ReduceSum", v, g.constant([0])), r),
    "ReduceMean": lambda g, v, r: (g.op("ReduceMean", v, axes=[-1]), r),
    "Softmax": lambda g, v, r: (g.op("Softmax", v, axis=0), r),
    "Shape": lambda g, v, r: (g.real(g.op("Shape", v)), 1),
    "Cast": lambda g, v, r: (g.real(g.op("Cast", v, to=TensorProto.INT32)), r),
    "rounded": lambda g, v, r: (g.real(g.op("Cast", v, to=TensorProto.BFLOAT16)), r),
    "Clip": lambda g, v, r: (g.op("Clip", v, g.input(np.float32(0.5), np.float32(0.7))), r),
    "Add": lambda g, v, r: (g.op("Add", v, g.op("ReduceSum", v, g.constant([0]))), r),
    "Add of two": lambda g, v, r: (g.op("Add", _flat(g, v), _other(g)), 1),
    "Sub of all pairs": lambda g, v, r: _outer(g, "Sub", v, r),
    "Mul": lambda g, v, r: (g.op("Mul", v, v), r),
    "Where": lambda g, v, r: (
        g.op("Where", g.op("Greater", v, g.constant(1, "float32")), v, g.op("Neg", v)),
        r,
    ),
    "TopK": lambda g, v, r: (g.op("TopK", _flat(g, v), g.constant([2]), results=2), 1),
    "TopK of some": lambda g, v, r: (
        g.op("TopK", _flat(g, v), _at_most(g, _flat(g, v), 3), axis=0, results=2),
        1,
    ),
    "suppression": lambda g, v, r: (_suppressed(g, _flat(g, v)), 2),
    "ScatterElements": lambda g, v, r: (_scattered(g, _flat(g, v)), 3),
    "ScatterElements at places": lambda g, v, r: (_replaced(g, _flat(g, v), "ScatterElements"), 1),
    "ScatterND": lambda g, v, r: (_replaced(g, _flat(g, v), "ScatterND"), 1),
    "Concat of many": lambda g, v, r: (
        g.op("Concat", *[_flat(g, v), g.op("Neg", _flat(g, v)), g.floats(2)] * 4, axis=-1),
        1,
    ),
    "Pad": lambda g, v, r: (
        g.op("Pad", v, g.constant([1, *[0] * (r - 1), 2, *[0] * (r - 1)])),
        r,
    ),
    "Expand": lambda g, v, r: (g.op("Expand", v, g.constant([3, *[1] * r])), r + 1),
    "Expand as it": lambda g, v, r: (
        g.op("Expand", g.constant(2.5, "float32"), g.op("Shape", v)),
        r,
    ),
    "Tile": lambda g, v, r: (g.op("Tile", v, g.constant([2] + [1] * (r - 1))), r),
    "Range as it": lambda g, v, r: (
        g.real(g.op("Range", g.constant(0), _first_size(g, v), g.constant(1))),
        1,
    ),
    "ConstantOfShape of half": lambda g, v, r: (
        g.op(
            "ConstantOfShape",
            g.op("Unsqueeze", g.op("Div", _first_size(g, v), g.constant(2)), g.constant([0])),
        ),
        1,
    ),
    "MatMul": lambda g, v, r: (
        g.op("MatMul", g.op("Reshape", v, g.constant([-1, 1])), g.floats(1, 5)),
        2,
    ),
    "Split": lambda g, v, r: (
        g.op("Split", g.op("Concat", v, v, axis=0), axis=0, results=2),
        r,
    ),
    "CumSum": lambda g, v, r: (g.op("CumSum", v, g.constant(0)), r),
    "Compress": lambda g, v, r: (
        g.op("Compress", _flat(g, v), g.op("Cast", _flat(g, v), to=TensorProto.BOOL), axis=0),
        1,
    ),
    "Unique": lambda g, v, r: (g.op("Unique", _flat(g, v)), 1),
    "NonZero": lambda g, v, r: (g.real(g.op("NonZero", v)), 2),
}
