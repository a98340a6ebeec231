"""What an ONNX node LSTM, GRU or RNN says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import Types, domain_of, static_shape

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
class RecurrentNode:
    """A node with static sizes.

    Attributes
    ----------
    kind : {"LSTM", "GRU", "RNN"}
    name : str
        Of the node, or of its first result.
    where : str
        The node and its model, for messages.
    dtype : numpy.dtype
    steps, batch, features, hidden : int
        Sizes: the input is [steps, batch, features], a state [batch, hidden].
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
    steps: int
    batch: int
    features: int
    hidden: int
    directions: tuple[str, ...]
    batch_first: bool
    attributes: Mapping[str, Any]

    @property
    def gates(self) -> int:
        """How many gates a cell has."""
        return GATES[self.kind]


def is_recurrent(node: onnx.NodeProto) -> bool:
    """Whether a node is one of the operators."""
    return node.op_type in GATES and not domain_of(node)


def parse(node: onnx.NodeProto, types: Types, where: str) -> RecurrentNode:
    """Read a node.

    Raises
    ------
    ModelError
        Its sizes are not known, it has no steps, or its direction is none.
    """
    name = node.name or next(filter(None, node.output), "")
    where = f"{where}: {node.op_type} (node {name!r})"
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    direction = attributes.get("direction", b"forward").decode()
    if direction not in _DIRECTIONS:
        raise ModelError(
            f"{where} has the direction {direction!r}; ONNX defines {', '.join(_DIRECTIONS)}"
        )
    batch_first = bool(attributes.get("layout", 0))
    sizes, weights = (static_shape(types.get(node.input[number])) for number in (0, 2))
    if sizes is None or weights is None or len(sizes) != 3 or len(weights) != 3:
        raise ModelError(
            f"{where} cannot be unrolled: how many steps, sequences and features it has is not "
            "known; give the shapes of the model's inputs"
        )
    first, second, features = sizes
    steps, batch = (second, first) if batch_first else (first, second)
    if not steps:
        raise ModelError(f"{where} has no steps: its input is empty; give it a step at least")
    return RecurrentNode(
        node.op_type,
        name,
        where,
        helper.tensor_dtype_to_np_dtype(types[node.input[0]].tensor_type.elem_type),
        steps,
        batch,
        features,
        weights[-1],
        _DIRECTIONS[direction],
        batch_first,
        attributes,
    )
