"""Operators of two tensors, or of a tensor and a number, in the type that PyTorch promotes to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    dtype_of,
    is_float,
    tvm_dtype,
)

#: The largest exponent that is products.
INTEGER_POWERS = 64


def _of_result(op: Callable[..., Any], of_bools: Callable[..., Any] | None = None) -> Converter:
    """Both operands in the result's type; ``of_bools`` is the operator's meaning for booleans."""

    def convert(call: OperatorCall, x: Any, y: Any) -> Any:
        chosen = of_bools if of_bools and call.dtype == "bool" else op
        return call.emit(chosen(call.cast(x), call.cast(y)))

    return convert


def _scaled(op: Callable[..., Any], of_bools: Callable[..., Any] | None = None) -> Converter:
    """``op(x, alpha * y)``."""
    plain = _of_result(op, of_bools)

    def convert(call: OperatorCall, x: Any, y: Any, alpha: Any = 1) -> Any:
        if alpha != 1:
            y = call.emit(relax.op.multiply(call.cast(y), call.cast(alpha)))
        return plain(call, x, y)

    return convert


def _reversed_subtraction(call: OperatorCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _scaled(relax.op.subtract)(call, y, x, alpha)


def _comparison(op: Callable[..., Any]) -> Converter:
    def convert(call: OperatorCall, x: Any, y: Any) -> Any:
        x, y = _common(call, x, y)
        return call.emit(op(x, y))

    return convert


def _differs(call: OperatorCall, x: Any, y: Any) -> Any:
    """TVM's ``!=`` is False for NaN, where PyTorch's is True."""
    x, y = _common(call, x, y)
    different = call.emit(relax.op.not_equal(x, y))
    for operand in (x, y):
        if is_float(dtype_of(operand)) and isinstance(operand, relax.Var):
            nan = relax.op.isnan(call.wide(operand))
            different = call.emit(relax.op.logical_or(different, nan))
    return different


def common_type(call: OperatorCall) -> str:
    """The type that PyTorch compares two tensors, or a tensor and a number, in."""
    import torch

    operands = [arg.meta["val"] if hasattr(arg, "meta") else arg for arg in call.node.args[:2]]
    return tvm_dtype(torch.result_type(*operands))


def _common(call: OperatorCall, x: Any, y: Any) -> tuple[Any, Any]:
    """Operands in the type that PyTorch computes in; for booleans that is int8 here."""
    dtype = common_type(call)
    dtype = "int8" if dtype == "bool" else dtype
    return call.cast(x, dtype), call.cast(y, dtype)


def _logical(op: Callable[..., Any]) -> Converter:
    def convert(call: OperatorCall, x: Any, y: Any) -> Any:
        return call.emit(op(call.cast(x, "bool"), call.cast(y, "bool")))

    return convert


def _divided(call: OperatorCall, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """Division; the floor of floats as Python has it, where 1 // 0.1 is 9."""
    x, y = call.cast(x), call.cast(y)
    if not is_float(call.dtype):
        op = relax.op.floor_divide if rounding_mode == "floor" else relax.op.divide
        return call.emit(op(x, y))
    quotient = call.emit(relax.op.divide(x, y))
    if rounding_mode == "trunc":
        return call.emit(relax.op.trunc(quotient))
    if rounding_mode is None:
        return quotient
    rest = call.emit(relax.op.mod(x, y))
    whole = relax.op.round(relax.op.divide(relax.op.subtract(x, rest), y))
    below = relax.op.subtract(whole, call.cast(_other_sign(call, rest, y)))
    return call.emit(relax.op.where(relax.op.equal(y, call.cast(0)), quotient, below))


def _remainder(call: OperatorCall, x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    x, y = call.cast(x), call.cast(y)
    if is_float(call.dtype):
        return _float_remainder(call, x, y)
    return call.emit(relax.op.floor_mod(x, y))


def _float_remainder(call: OperatorCall, x: Any, y: Any) -> Any:
    rest = call.emit(relax.op.mod(x, y))
    return call.emit(relax.op.where(_other_sign(call, rest, y), relax.op.add(rest, y), rest))


def _other_sign(call: OperatorCall, x: Any, y: Any) -> Any:
    """Whether one of two is below zero and the other above."""
    signs = relax.op.multiply(relax.op.sign(x), relax.op.sign(y))
    return call.emit(relax.op.less(signs, call.cast(0)))


def _power(call: OperatorCall, x: Any, y: Any) -> Any:
    if isinstance(y, int | float) and 0 < y <= INTEGER_POWERS and y == int(y):
        return integer_power(call.cast(x), int(y), partial(_multiplied, call))
    if not is_float(call.dtype):
        if y == 0:
            return call.filled(call.shape, 1)
        call.refuse("powers of integers need an exponent that is a small constant")
    x = call.cast(x)
    if y == 0.5:
        return call.emit(relax.op.sqrt(x))
    if y == -1:
        return call.emit(relax.op.divide(call.cast(1), x))
    return call.emit(relax.op.power(x, call.cast(y)))


def _multiplied(call: OperatorCall, x: Any, y: Any) -> Any:
    return call.emit(relax.op.multiply(x, y))


def integer_power(x: Any, exponent: int, multiply: Callable[[Any, Any], Any]) -> Any:
    """By squaring: exact for integers, and right for negative numbers."""
    if exponent == 1:
        return x
    half = integer_power(x, exponent // 2, multiply)
    square = multiply(half, half)
    return multiply(square, x) if exponent % 2 else square


def larger(call: OperatorCall, x: Any, y: Any) -> Any:
    """The larger of two, or NaN if one is."""
    return _extremum(relax.op.maximum, relax.op.logical_or, call, x, y)


def smaller(call: OperatorCall, x: Any, y: Any) -> Any:
    """The smaller of two, or NaN if one is."""
    return _extremum(relax.op.minimum, relax.op.logical_and, call, x, y)


def _extremum(
    op: Callable[..., Any], of_bools: Callable[..., Any], call: OperatorCall, x: Any, y: Any
) -> Any:
    # TVM's maximum(x, y) is (x > y ? x : y), so a NaN stays if it is the second.
    x, y = call.cast(x), call.cast(y)
    if call.dtype == "bool":
        return call.emit(of_bools(x, y))
    either = call.emit(op(x, y))
    if not is_float(call.dtype):
        return either
    return call.emit(relax.op.where(relax.op.isnan(call.wide(x)), x, either))


def _ignoring_nan(op: Callable[..., Any]) -> Converter:
    """``fmax`` and ``fmin``: the other where one is NaN."""

    def convert(call: OperatorCall, x: Any, y: Any) -> Any:
        x, y = call.cast(x), call.cast(y)
        either = call.emit(op(x, y))
        if not is_float(call.dtype):
            return either
        return call.emit(relax.op.where(relax.op.isnan(call.wide(y)), x, either))

    return convert


def _hypotenuse(call: OperatorCall, x: Any, y: Any) -> Any:
    x, y = call.cast(x), call.cast(y)
    squares = relax.op.add(relax.op.multiply(x, x), relax.op.multiply(y, y))
    return call.emit(relax.op.sqrt(squares))


def clamped(call: OperatorCall, x: Any, low: Any = None, high: Any = None) -> Any:
    """A tensor between limits, which are numbers, tensors or None; a NaN stays."""
    x = call.cast(x)
    for op, limit, extremum in (
        (relax.op.maximum, low, larger),
        (relax.op.minimum, high, smaller),
    ):
        if isinstance(limit, relax.Expr):
            x = extremum(call, x, limit)
        elif limit is not None:
            x = call.emit(op(call.cast(limit), x))
    return x


def _clamped_above(call: OperatorCall, x: Any, high: Any) -> Any:
    return clamped(call, x, None, high)


def _shift(op: Callable[..., Any]) -> Converter:
    """By the width of an element or more, or by less than nothing: 0 or, to the right, the sign."""

    def convert(call: OperatorCall, x: Any, y: Any) -> Any:
        x, count, last = call.cast(x), call.cast(y), np.iinfo(call.dtype).bits - 1
        if isinstance(y, int) and 0 <= y <= last:
            return call.emit(op(x, count))
        not_below = relax.op.greater_equal(count, call.cast(0))
        not_above = relax.op.less_equal(count, call.cast(last))
        inside = call.emit(relax.op.logical_and(not_below, not_above))
        shifted = call.emit(op(x, relax.op.where(inside, count, call.cast(last))))
        if op is relax.op.right_shift and call.dtype.startswith("int"):
            return shifted
        return call.emit(relax.op.where(inside, shifted, call.cast(0)))

    return convert


def _chosen(call: OperatorCall, condition: Any, x: Any, y: Any) -> Any:
    """``where``: by the type of the result, not of the operands."""
    if dtype_of(condition) != "bool":
        condition = call.cast(condition, "bool")
    if call.dtype == "bool":
        x, y = call.cast(x, "int8"), call.cast(y, "int8")
        return call.cast(call.emit(relax.op.where(condition, x, y)), "bool")
    return call.emit(relax.op.where(condition, call.cast(x), call.cast(y)))


def _overloads(name: str, converter: Converter) -> dict[str, Converter]:
    return {f"{name}.Tensor": converter, f"{name}.Scalar": converter}


CONVERTERS: dict[str, Converter] = {
    **_overloads("add", _scaled(relax.op.add, relax.op.logical_or)),
    **_overloads("sub", _scaled(relax.op.subtract)),
    **_overloads("rsub", _reversed_subtraction),
    **_overloads("mul", _of_result(relax.op.multiply, relax.op.logical_and)),
    **_overloads("div", _divided),
    "div.Tensor_mode": _divided,
    "div.Scalar_mode": _divided,
    **_overloads("remainder", _remainder),
    **_overloads("fmod", _of_result(relax.op.mod)),
    "pow.Tensor_Scalar": _power,
    "pow.Tensor_Tensor": _power,
    "pow.Scalar": _power,
    "atan2.default": _of_result(relax.op.atan2),
    "maximum.default": larger,
    "minimum.default": smaller,
    "fmax.default": _ignoring_nan(relax.op.maximum),
    "fmin.default": _ignoring_nan(relax.op.minimum),
    "hypot.default": _hypotenuse,
    "clamp.default": clamped,
    "clamp.Tensor": clamped,
    "clamp_min.default": clamped,
    "clamp_max.default": _clamped_above,
    "hardtanh.default": clamped,
    **{
        key: _comparison(op)
        for name, op in {
            "eq": relax.op.equal,
            "lt": relax.op.less,
            "le": relax.op.less_equal,
            "gt": relax.op.greater,
            "ge": relax.op.greater_equal,
        }.items()
        for key in (f"{name}.Tensor", f"{name}.Scalar")
    },
    **_overloads("ne", _differs),
    "logical_and.default": _logical(relax.op.logical_and),
    "logical_or.default": _logical(relax.op.logical_or),
    "logical_xor.default": _logical(relax.op.logical_xor),
    **_overloads("bitwise_and", _of_result(relax.op.bitwise_and, relax.op.logical_and)),
    **_overloads("bitwise_or", _of_result(relax.op.bitwise_or, relax.op.logical_or)),
    **_overloads("bitwise_xor", _of_result(relax.op.bitwise_xor, relax.op.logical_xor)),
    **_overloads("__lshift__", _shift(relax.op.left_shift)),
    **_overloads("__rshift__", _shift(relax.op.right_shift)),
    **_overloads("bitwise_left_shift", _shift(relax.op.left_shift)),
    **_overloads("bitwise_right_shift", _shift(relax.op.right_shift)),
    "where.self": _chosen,
}
