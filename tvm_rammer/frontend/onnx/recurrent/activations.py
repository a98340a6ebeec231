"""The activations that ONNX defines for recurrent operators, as operators.

And what computes them, and cells: nodes of a graph, or expressions in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.recurrent.node import RecurrentOperator

#: The name of a tensor in a graph, or an expression.
Value = Any
Activation = Callable[[Value], Value]


class Operators(Protocol):
    """Who computes: nodes in a graph, or expressions in a loop."""

    def constant(self, value: Any, dtype: Any) -> Value:
        """A constant with the given value."""
        ...

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """The result of one of ONNX's operators."""
        ...


_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
#: So many activations of a cell have their input clipped. ONNX says all; ONNX Runtime, to which
#: everybody compares, lets an LSTM's memory into the third one as it is.
_CLIPPED = 2
_KEYS = ("alpha", "beta")
#: Their parameters, and what these are unless the node says otherwise (ONNX, operator RNN).
_PARAMETERS: dict[str, dict[str, float | None]] = {
    "Affine": {"alpha": None, "beta": None},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "ScaledTanh": {"alpha": None, "beta": None},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 1.0},
}
_BY_LOWER_CASE = {name.lower(): name for name in _PARAMETERS}


def activations(nodes: Operators, node: RecurrentOperator) -> list[tuple[Activation, ...]]:
    """The activations of each direction, in the order in which ONNX lists them.

    Raises
    ------
    ModelError
        ONNX does not define one of them, or they are too few or lack parameters.
    """
    defaults = _DEFAULTS[node.kind]
    count = len(defaults)
    given = [name.decode() for name in node.attributes.get("activations", ())]
    names = given or [*defaults] * len(node.directions)
    if len(names) != count * len(node.directions):
        raise ModelError(
            f"{node.where} has {len(names)} activations; it needs {count} for each direction"
        )
    values = {key: iter(node.attributes.get(f"activation_{key}", ())) for key in _KEYS}
    made = [
        _activation(nodes, node, name, values, clipped=place % count < _CLIPPED)
        for place, name in enumerate(names)
    ]
    return [tuple(made[start : start + count]) for start in range(0, len(made), count)]


def _activation(
    nodes: Operators,
    node: RecurrentOperator,
    name: str,
    values: Mapping[str, Iterator[float]],
    *,
    clipped: bool,
) -> Activation:
    kind = _BY_LOWER_CASE.get(name.lower())
    if kind is None:
        known = ", ".join(_PARAMETERS)
        raise ModelError(f"{node.where} has the activation {name!r}; ONNX defines {known}")
    numbers: dict[str, Any] = {}
    for key, default in _PARAMETERS[kind].items():
        number = next(values[key], default)
        if number is None:
            raise ModelError(
                f"{node.where} has the activation {name!r} without activation_{key}; "
                "export the model again"
            )
        numbers[key] = number

    def apply(value: Value) -> Value:
        value = _clipped(nodes, node, value) if clipped else value
        if kind == "Affine":
            alpha, beta = (nodes.constant(numbers[key], node.dtype) for key in _KEYS)
            return nodes.op("Add", nodes.op("Mul", alpha, value), beta)
        if kind == "ScaledTanh":
            alpha, beta = (nodes.constant(numbers[key], node.dtype) for key in _KEYS)
            return nodes.op("Mul", alpha, nodes.op("Tanh", nodes.op("Mul", beta, value)))
        return nodes.op(kind, value, **numbers)

    return apply


def _clipped(nodes: Operators, node: RecurrentOperator, value: Value) -> Value:
    limit = node.attributes.get("clip")
    if not limit:
        return value
    above = nodes.op("Max", value, nodes.constant(-limit, node.dtype))
    return nodes.op("Min", above, nodes.constant(limit, node.dtype))
