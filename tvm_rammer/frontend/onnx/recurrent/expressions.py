"""ONNX's operators that cells are made of, on vectors in a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

#: A tangent of float32 is 1 from here on.
_SATURATED = 9.0
#: Of the quotient that is a hyperbolic tangent in between, to two units in the last place: the
#: powers 1, 3, 5 and so on above, 0, 2, 4 and so on below. Eigen's, and ONNX Runtime's.
_ABOVE = (
    4.89352455891786e-03,
    6.37261928875436e-04,
    1.48572235717979e-05,
    5.12229709037114e-08,
    -8.60467152213735e-11,
    2.00018790482477e-13,
    -2.76076847742355e-16,
)
_BELOW = (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)


#: An element of a vector, by its number.
Vector = Callable[[Any], Any]


class Expressions:
    """Writes vector code where :class:`~tvm_rammer.frontend.onnx.new_nodes.Nodes` makes nodes.

    Each result is written down, in what become registers: TVM's passes would put an expression with
    a name wherever that is mentioned, again and again.

    Parameters
    ----------
    lanes : int
        Elements of a vector.
    dtype : numpy.dtype
    """

    def __init__(self, lanes: int, dtype: Any) -> None:
        self.lanes, self.dtype = lanes, str(np.dtype(dtype))

    def constant(self, value: Any, dtype: Any) -> Vector:
        """A constant with the given value."""
        return lambda lane: self.number(value)

    def op(self, kind: str, *inputs: Vector, **attributes: Any) -> Vector:
        """The result of one of ONNX's operators."""
        if kind in _OF_SEVERAL:
            return _OF_SEVERAL[kind](self, *inputs)
        numbers = {key: self.number(value) for key, value in attributes.items()}
        return self.made(partial(_OPERATORS[kind], **numbers), *inputs)

    def made(self, element: Callable[..., Any], *inputs: Vector) -> Vector:
        """What is computed of the elements of vectors."""
        buffer = T.buffer_proxy(T.alloc_buffer((self.lanes,), self.dtype, scope="local"))
        with self.each_lane() as lane:
            buffer[lane] = element(*(each(lane) for each in inputs))
        return lambda lane: buffer[lane]

    def each_lane(self) -> Any:
        """All at once."""
        return (T.vectorized if self.lanes > 1 else T.serial)(0, self.lanes)

    def number(self, value: float) -> Any:
        """An element that is a constant."""
        return tirx.const(float(value), self.dtype)


def _tanh(to: Expressions, x: Vector) -> Vector:
    """Without a call, which would be one for each element."""
    if to.dtype != "float32":
        return to.made(tirx.tanh, x)
    limit = to.number(_SATURATED)
    # What is not a number is on no side of a limit, and stays what it is.
    below = to.made(lambda x: tirx.Select(x > limit, limit, x), x)
    inside = to.made(lambda x: tirx.Select(x < -limit, -limit, x), below)
    square = to.made(lambda x: x * x, inside)
    above = to.made(partial(_polynomial, _ABOVE), square)
    under = to.made(partial(_polynomial, _BELOW), square)
    return to.made(lambda x, above, under: x * above / under, inside, above, under)


def _polynomial(factors: Sequence[float], x: Any) -> Any:
    *others, found = (_number(x, factor) for factor in factors)
    for factor in reversed(others):
        found = found * x + factor
    return found


def _sigmoid(to: Expressions, x: Vector) -> Vector:
    half = to.number(0.5)
    tangent = _tanh(to, to.made(lambda x: x * half, x))
    return to.made(lambda x: x * half + half, tangent)


def _elu(x: Any, alpha: Any) -> Any:
    zero = _number(x, 0)
    below = alpha * (tirx.exp(tirx.min(x, zero)) - _number(x, 1))
    return tirx.Select(x < zero, below, x)


def _hard_sigmoid(x: Any, alpha: Any, beta: Any) -> Any:
    return tirx.max(tirx.min(x * alpha + beta, _number(x, 1)), _number(x, 0))


def _softplus(x: Any) -> Any:
    beyond = tirx.log(_number(x, 1) + tirx.exp(-tirx.abs(x)))
    return tirx.max(x, _number(x, 0)) + beyond


def _number(like: Any, value: float) -> Any:
    return tirx.const(value, str(like.ty.dtype))


#: Of which parts are written down.
_OF_SEVERAL: Mapping[str, Callable[..., Vector]] = {"Sigmoid": _sigmoid, "Tanh": _tanh}
#: On elements.
_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": lambda x, y: x + y,
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": lambda x, alpha: tirx.Select(x < _number(x, 0), x * alpha, x),
    "Max": lambda x, y: tirx.max(x, y),
    "Min": lambda x, y: tirx.min(x, y),
    "Mul": lambda x, y: x * y,
    "Relu": lambda x: tirx.max(x, _number(x, 0)),
    "Softplus": _softplus,
    "Softsign": lambda x: x / (_number(x, 1) + tirx.abs(x)),
    "Sub": lambda x, y: x - y,
    "ThresholdedRelu": lambda x, alpha: tirx.Select(x > alpha, x, _number(x, 0)),
}
