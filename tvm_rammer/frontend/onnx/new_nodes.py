"""Appends operators and constants to an ONNX graph, under names that nobody has."""

from __future__ import annotations

from collections.abc import Iterator, MutableSet, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_rammer.frontend.onnx.names import all_names, fresh

#: Since this version of ONNX's operators Split has to be told how many parts it makes.
_SPLIT_COUNTS_SINCE = 18
#: Since these versions the sizes of a Split, new axes, and the axes of a reduction are inputs.
_SPLIT_SIZES_SINCE = 13
_AXES_SINCE = {"ReduceSum": 13}
_OTHER_AXES_SINCE = 18


class Nodes:
    """A graph that grows.

    Parameters
    ----------
    graph : onnx.GraphProto
    version : int
        Of ONNX's operators in the model.
    prefix : str
        What new names begin with.
    taken : set of str, optional
        Names that somebody has; those in the graph if not given.
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        version: int,
        prefix: str,
        taken: MutableSet[str] | None = None,
    ) -> None:
        self._graph = graph
        self._version = version
        self._prefix = prefix
        self._taken = all_names(graph) if taken is None else taken

    @contextmanager
    def into(self, graph: onnx.GraphProto) -> Iterator[None]:
        """Append to another graph, inside this one, for a while."""
        outer, self._graph = self._graph, graph
        try:
            yield
        finally:
            self._graph = outer

    def append(self, node: onnx.NodeProto) -> None:
        """Append a node whose names are known to be new."""
        self._graph.node.append(node)

    def constant(self, value: Any, dtype: Any) -> str:
        """A constant with the given value."""
        name = self.new_name("constant")
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """The result of an operator; ``output`` names it."""
        name = output or self.new_name(kind)
        self._graph.node.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def ops(self, kind: str, *inputs: str, count: int, **attributes: Any) -> tuple[str, ...]:
        """The results of an operator with several."""
        names = tuple(self.new_name(kind) for _ in range(count))
        self._graph.node.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names

    def reshape(self, value: str, *shape: int, output: str | None = None) -> str:
        """A tensor in another shape."""
        return self.op("Reshape", value, self.constant(shape, np.int64), output=output)

    def unsqueeze(self, value: str, axis: int) -> str:
        """A tensor with one axis more, of one place."""
        if self._version < _SPLIT_SIZES_SINCE:
            return self.op("Unsqueeze", value, axes=[axis])
        return self.op("Unsqueeze", value, self.constant([axis], np.int64))

    def cast(self, value: str, dtype: Any) -> str:
        """A tensor with elements of another type."""
        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reduce(self, kind: str, value: str, axes: Sequence[int], *, keepdims: bool = True) -> str:
        """A reduction along axes."""
        if self._version >= _AXES_SINCE.get(kind, _OTHER_AXES_SINCE):
            where = self.constant(axes, np.int64)
            return self.op(kind, value, where, keepdims=int(keepdims))
        return self.op(kind, value, axes=list(axes), keepdims=int(keepdims))

    def slice(self, value: str, axis: int, start: int, stop: int, step: int = 1) -> str:
        """A part of a tensor along an axis."""
        bounds = (self.constant([number], np.int64) for number in (start, stop, axis, step))
        return self.op("Slice", value, *bounds)

    def split(self, value: str, axis: int, parts: int) -> tuple[str, ...]:
        """A tensor in equal parts along an axis."""
        if parts == 1:
            return (value,)
        count: dict[str, Any] = (
            {"num_outputs": parts} if self._version >= _SPLIT_COUNTS_SINCE else {}
        )
        return self.ops("Split", value, count=parts, axis=axis, **count)

    def split_at(self, value: str, axis: int, sizes: Sequence[int]) -> tuple[str, ...]:
        """A tensor in parts of the given sizes along an axis."""
        if len(sizes) == 1:
            return (value,)
        if self._version >= _SPLIT_SIZES_SINCE:
            where = self.constant(sizes, np.int64)
            return self.ops("Split", value, where, count=len(sizes), axis=axis)
        return self.ops("Split", value, count=len(sizes), axis=axis, split=list(sizes))

    def new_name(self, kind: str) -> str:
        """A name that nobody has."""
        return fresh(f"{self._prefix}/{kind}", self._taken)


def scale_and_point(nodes: Nodes, value: str, zero: str, last: str) -> tuple[str, str]:
    """What DynamicQuantizeLinear finds for a tensor: the size of its steps, and on which 0 is.

    All are floats, as the first step, which is 0, and the last one.
    """
    high = nodes.op("Max", nodes.op("ReduceMax", value, keepdims=0), zero)
    low = nodes.op("Min", nodes.op("ReduceMin", value, keepdims=0), zero)
    span = nodes.op("Sub", high, low)
    # Data of zeros only have no range: the scale is 1 then, so that nobody divides by 0.
    flat = nodes.op("Equal", span, zero)
    scale = nodes.op("Where", flat, nodes.constant(1, np.float32), nodes.op("Div", span, last))
    point = nodes.op("Round", nodes.op("Sub", zero, nodes.op("Div", low, scale)))
    # It is a step; compiling needs to see that.
    return scale, nodes.op("Min", nodes.op("Max", point, zero), last)


def bytes_and_scale(nodes: Nodes, value: str) -> tuple[str, str]:
    """A tensor of floats on the 256 steps of DynamicQuantizeLinear: steps from 0, and their size.

    Both are floats.
    """
    zero, last = (nodes.constant(number, np.float32) for number in (0, 255))
    scale, point = scale_and_point(nodes, value, zero, last)
    rounded = nodes.op("Add", nodes.op("Round", nodes.op("Div", value, scale)), point)
    inside = nodes.op("Min", nodes.op("Max", rounded, zero), last)
    return nodes.op("Sub", inside, point), scale
