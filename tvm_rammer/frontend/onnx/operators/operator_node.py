"""What an ONNX node says: its operands with their types and values, its attributes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import Types, Values, domain_of, static_shape
from tvm_rammer.frontend.onnx.names import attributes_of, describe
from tvm_rammer.frontend.onnx.new_nodes import Nodes


@dataclass(frozen=True)
class OperatorNode:
    """A node of a graph.

    Attributes
    ----------
    proto : onnx.NodeProto
    model : str
        For messages.
    version : int
        Of ONNX's operators in the model.
    types : mapping of str to onnx.TypeProto
        Of the tensors before it, as far as known.
    values : mapping of str to onnx.TensorProto
        The tensors before it that are constants.
    attributes : mapping of str to object
    states : collection of str
        Inputs of the model that are what outputs were after the run before.
    """

    proto: onnx.NodeProto
    model: str
    version: int
    types: Types
    values: Values
    attributes: Mapping[str, Any]
    states: Collection[str] = ()

    @property
    def kind(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    @property
    def domain(self) -> str:
        """Whose operator it is; empty for ONNX's own."""
        return domain_of(self.proto)

    @property
    def key(self) -> tuple[str, str]:
        """The operator: its domain and its name."""
        return self.domain, self.kind

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands; an empty one is left out."""
        return tuple(self.proto.input)

    def input(self, number: int) -> str:
        """An operand's name, empty if it is left out."""
        return self.proto.input[number] if number < len(self.proto.input) else ""

    def wants(self, number: int) -> bool:
        """Whether the node names this result."""
        return number < len(self.proto.output) and bool(self.proto.output[number])

    def known_shape(self, name: str) -> tuple[int, ...] | None:
        """A tensor's static shape, if it has one."""
        return static_shape(self.types.get(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's static shape.

        Raises
        ------
        ModelError
            It is not known.
        """
        shape = self.known_shape(name)
        if shape is None:
            raise self.refusal(
                f"the shape of {name!r} is known only at run time; fix the inputs that decide it "
                "with constants=, or compile what follows as a model of its own"
            )
        return shape

    def dtype(self, name: str) -> np.dtype:
        """A tensor's element type.

        Raises
        ------
        ModelError
            It is not known.
        """
        kind = self.types[name].tensor_type.elem_type if name in self.types else 0
        if not kind:
            raise self.refusal(f"the element type of {name!r} is not known")
        return helper.tensor_dtype_to_np_dtype(kind)

    def value(self, name: str) -> np.ndarray | None:
        """A tensor's value, if it is a constant."""
        tensor = self.values.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def is_zero(self, name: str) -> bool:
        """Whether a tensor is left out, or a constant without anything but 0."""
        value = self.value(name)
        return not name or (value is not None and not value.any())

    def constant(self, number: int) -> np.ndarray | None:
        """An operand's value, if it is a constant."""
        return self.value(self.input(number))

    def needed_constant(self, number: int, what: str) -> np.ndarray:
        """An operand's value.

        Raises
        ------
        ModelError
            It is not a constant.
        """
        value = self.constant(number)
        if value is None:
            raise self.refusal(
                f"its {what} is known only at run time; fix the inputs that decide it with "
                "constants="
            )
        return value

    def text(self, attribute: str, default: str) -> str:
        """An attribute that is a text."""
        return self.attributes.get(attribute, default.encode()).decode()

    def refusal(self, reason: str) -> ModelError:
        """Why the node cannot be compiled."""
        return ModelError(f"{self.model}: {describe(self.proto)} cannot be compiled: {reason}")


#: Appends what computes a node's results, and returns their names; ``None`` leaves the node.
Rule = Callable[[OperatorNode, Nodes], "tuple[str, ...] | None"]


def parse(
    proto: onnx.NodeProto,
    model: str,
    version: int,
    types: Types,
    values: Values,
    states: Collection[str],
) -> OperatorNode:
    """Read a node."""
    attributes = attributes_of(proto)
    return OperatorNode(proto, model, version, types, values, attributes, states)
