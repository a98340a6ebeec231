"""What an ONNX node LSTM, GRU or RNN says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import Types, domain_of, known_sizes, static_shape
from tvm_rammer.frontend.onnx.names import attributes_of

#: The operators, and how many gates their cells have.
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: An attribute of our own: the products see the inputs and the hidden state rounded to 8 bits, as
#: in com.microsoft.DynamicQuantizeLSTM, which is otherwise an LSTM.
QUANTIZED = "tvm_rammer.quantized"
_DIRECTIONS = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}


@dataclass(frozen=True)
class RecurrentOperator:
    """What a node says, whatever sizes its input has.

    Attributes
    ----------
    kind : {"LSTM", "GRU", "RNN"}
    name : str
        Of the node, or of its first result.
    where : str
        The node and its model, for messages.
    dtype : numpy.dtype
    hidden : int
        Elements of a state.
    directions : tuple of {"forward", "reverse"}
    batch_first : bool
        Batch comes before time, in states before the direction (``layout=1``).
    attributes : mapping of str to object
        As the node has them.
    """

    kind: str
    name: str
    where: str
    dtype: np.dtype
    hidden: int
    directions: tuple[str, ...]
    batch_first: bool
    attributes: Mapping[str, Any]

    @property
    def gates(self) -> int:
        """How many gates a cell has."""
        return GATES[self.kind]

    @property
    def resets_after_product(self) -> bool:
        """Whether a GRU multiplies its state first, then resets it."""
        return self.kind == "GRU" and bool(self.attributes.get("linear_before_reset", 0))


@dataclass(frozen=True)
class RecurrentNode(RecurrentOperator):
    """A node with static sizes.

    Attributes
    ----------
    steps, batch, features : int
        Sizes: the input is [steps, batch, features], a state [batch, hidden].
    """

    steps: int
    batch: int
    features: int


def is_recurrent(node: onnx.NodeProto) -> bool:
    """Whether a node is one of the operators."""
    return node.op_type in GATES and not domain_of(node)


def parse(node: onnx.NodeProto, types: Types, where: str) -> RecurrentOperator:
    """Read a node; it is a :class:`RecurrentNode` if the sizes of its input are known.

    Raises
    ------
    ModelError
        What the run must not decide is not known, it has no steps, or its direction is none.
    """
    name = node.name or next(filter(None, node.output), "")
    where = f"{where}: {node.op_type} (node {name!r})"
    attributes = attributes_of(node)
    directions = directions_of(attributes, where)
    batch_first = bool(attributes.get("layout", 0))
    x, weights = types.get(node.input[0], onnx.TypeProto()), types.get(node.input[2])
    first, second, features = known_sizes(x) if len(x.tensor_type.shape.dim) == 3 else [None] * 3
    recurrent = static_shape(weights)
    if features is None or recurrent is None or len(recurrent) != 3:
        raise ModelError(
            f"{where} cannot be compiled: how many features its input has, or of which sizes its "
            "weights are, is not known; give the shapes of the model's inputs"
        )
    steps, batch = (second, first) if batch_first else (first, second)
    if steps == 0:
        raise ModelError(f"{where} has no steps: its input is empty; give it a step at least")
    dtype = helper.tensor_dtype_to_np_dtype(x.tensor_type.elem_type)
    hidden = recurrent[-1]
    said = (node.op_type, name, where, dtype, hidden, directions, batch_first, attributes)
    if steps is None or batch is None:
        return RecurrentOperator(*said)
    return RecurrentNode(*said, steps, batch, features)


def directions_of(attributes: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """In which directions a node goes through its steps.

    Raises
    ------
    ModelError
        ONNX does not define what it says.
    """
    direction = attributes.get("direction", b"forward").decode()
    if direction not in _DIRECTIONS:
        raise ModelError(
            f"{where} has the direction {direction!r}; ONNX defines {', '.join(_DIRECTIONS)}"
        )
    return _DIRECTIONS[direction]
