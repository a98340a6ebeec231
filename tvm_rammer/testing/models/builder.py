"""Builds ONNX graphs: names values, keeps shapes, adds seeded random weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, DTypeLike
from onnx import helper, numpy_helper, shape_inference

from tvm_rammer.errors import ModelError

OPSET = 17
IR_VERSION = 9


class GraphBuilder:
    """An ONNX graph under construction; values are referred to by name.

    Parameters
    ----------
    name : str
        The name of the graph.
    seed : int
        Seed of every random weight, so that a model is the same bytes each time.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self._graph = onnx.GraphProto(name=name)
        self._types: dict[str, onnx.TypeProto] = {}
        self._small: dict[str, onnx.TensorProto] = {}
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._outputs: dict[str, str] = {}
        self._scope = ""
        self._count = 0
        self._opsets = [helper.make_opsetid("", OPSET)]

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of everything made inside, as in ``stage1/block0/conv_7``."""
        outer = self._scope
        self._scope = f"{outer}{name}/"
        try:
            yield
        finally:
            self._scope = outer

    def shape(self, value: str) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(d.dim_value for d in self._types[value].tensor_type.shape.dim)

    def input(self, name: str, shape: Sequence[int], dtype: DTypeLike = np.float32) -> str:
        """Declare a graph input and return its name."""
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._types[name] = helper.make_tensor_type_proto(element, list(shape))
        self._graph.input.append(helper.make_value_info(name, self._types[name]))
        return name

    def initialiser(self, array: np.ndarray, stem: str = "weight") -> str:
        """Add an initialiser; float64 becomes float32."""
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = self._name(stem)
        tensor = numpy_helper.from_array(array, name)
        self._graph.initializer.append(tensor)
        self._types[name] = helper.make_tensor_type_proto(tensor.data_type, array.shape)
        if array.dtype == np.int64:  # shapes, axes and pads decide the shapes of results
            self._small[name] = tensor
        return name

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.float32) -> str:
        """A constant; equal ones share an initialiser."""
        array = np.asarray(value, dtype=dtype)
        key = (array.tobytes(), str(array.dtype), array.shape)
        if key not in self._constants:
            self._constants[key] = self.initialiser(array, "constant")
        return self._constants[key]

    def weight(self, shape: Sequence[int], scale: float) -> str:
        """A normally distributed float32 weight with standard deviation ``scale``."""
        array = self.rng.standard_normal(tuple(shape), dtype=np.float32)
        return self.initialiser(array * np.float32(scale))

    def uniform(self, shape: Sequence[int], low: float, high: float) -> str:
        """A float32 weight distributed uniformly over [low, high)."""
        return self.initialiser(self.rng.uniform(low, high, tuple(shape)))

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return that value's name."""
        return self.ops(op_type, inputs, 1, **attributes)[0]

    def ops(
        self, op_type: str, inputs: Sequence[str], outputs: int, **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs and return their names."""
        name = self._name(op_type.lower())
        names = (name,) if outputs == 1 else tuple(f"{name}_{i}" for i in range(outputs))
        node = helper.make_node(op_type, list(inputs), list(names), name=name, **attributes)
        self._graph.node.append(node)
        self._infer(node)
        return names

    def output(self, name: str, value: str) -> None:
        """Make a computed value the graph output ``name``."""
        self._outputs[value] = name

    def build(self) -> onnx.ModelProto:
        """The finished model, every value with its shape."""
        for node in self._graph.node:
            _rename(node.input, self._outputs)
            _rename(node.output, self._outputs)
            for value in node.output:
                if value not in self._outputs.values():
                    self._graph.value_info.append(helper.make_value_info(value, self._types[value]))
        for value, name in self._outputs.items():
            self._graph.output.append(helper.make_value_info(name, self._types[value]))
        return helper.make_model(
            self._graph,
            opset_imports=self._opsets,
            ir_version=IR_VERSION,
            producer_name="tvm_rammer",
        )

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{self._scope}{stem}_{self._count}"

    def _infer(self, node: onnx.NodeProto) -> None:
        read = [value for value in node.input if value]
        unknown = [value for value in read if value not in self._types]
        if unknown:
            raise ModelError(f"{node.name} reads {unknown[0]!r}, which nothing has made")
        schema = onnx.defs.get_schema(node.op_type, OPSET, "")
        self._types |= shape_inference.infer_node_outputs(
            schema,
            node,
            {value: self._types[value] for value in read},
            {value: self._small[value] for value in read if value in self._small},
            opset_imports=self._opsets,
            ir_version=IR_VERSION,
        )


def _rename(names: Any, renamed: Mapping[str, str]) -> None:
    for index, name in enumerate(names):
        if name in renamed:
            names[index] = renamed[name]
