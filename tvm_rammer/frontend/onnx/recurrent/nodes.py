"""Appends operators and constants to an ONNX graph, under names that nobody has."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

#: Since this version of ONNX's operators Split has to be told how many parts it makes.
_SPLIT_COUNTS_SINCE = 18


class Nodes:
    """A graph that grows.

    Parameters
    ----------
    graph : onnx.GraphProto
    version : int
        Of ONNX's operators in the model.
    """

    def __init__(self, graph: onnx.GraphProto, version: int) -> None:
        self._graph = graph
        self._version = version
        named = (*graph.initializer, *graph.input)
        self._taken = {value.name for value in named}
        self._taken |= {name for node in graph.node for name in (*node.input, *node.output)}

    def constant(self, value: Any, dtype: Any) -> str:
        """A constant with the given value."""
        name = self._new("constant")
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """The result of an operator; ``output`` names it."""
        name = output or self._new(kind)
        self._graph.node.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def reshape(self, value: str, *shape: int, output: str | None = None) -> str:
        """A tensor in another shape."""
        return self.op("Reshape", value, self.constant(shape, np.int64), output=output)

    def split(self, value: str, axis: int, parts: int) -> tuple[str, ...]:
        """A tensor in equal parts along an axis."""
        if parts == 1:
            return (value,)
        names = tuple(self._new("Split") for _ in range(parts))
        count: dict[str, Any] = (
            {"num_outputs": parts} if self._version >= _SPLIT_COUNTS_SINCE else {}
        )
        node = helper.make_node("Split", [value], names, names[0], axis=axis, **count)
        self._graph.node.append(node)
        return names

    def _new(self, kind: str) -> str:
        number = len(self._taken)
        while (name := f"unrolled/{kind}{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name
