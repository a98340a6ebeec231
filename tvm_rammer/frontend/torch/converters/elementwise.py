"""Functions of one tensor, element by element: mathematics, rounding, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax

from tvm_rammer.frontend.rounding import rounded_to_bfloat16
from tvm_rammer.frontend.same_bits import same_bits
from tvm_rammer.frontend.torch.converters.arithmetic import clamped
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    dtype_of,
    is_float,
    shape_of,
)

_LN2 = 0.6931471805599453
_LN10 = 2.302585092994046


def _of_result(op: Callable[..., Any]) -> Converter:
    """The operand in the result's type: PyTorch computes ``sqrt`` of integers in floats."""

    def convert(call: OperatorCall, x: Any) -> Any:
        return call.emit(op(call.cast(x)))

    return convert


def _of_floats(op: Callable[..., Any]) -> Converter:
    """What leaves integers as they are."""

    def convert(call: OperatorCall, x: Any) -> Any:
        return call.emit(op(x)) if is_float(call.dtype) else x

    return convert


def _test(op: Callable[..., Any]) -> Converter:
    """A question that integers answer with no."""

    def convert(call: OperatorCall, x: Any) -> Any:
        if is_float(dtype_of(x)):
            return call.emit(op(x))
        return call.filled(call.shape, False)

    return convert


def _unchanged(call: OperatorCall, x: Any, *_: Any) -> Any:
    return x


def _absolute(call: OperatorCall, x: Any) -> Any:
    return x if call.dtype in ("bool", "uint8") else call.emit(relax.op.abs(x))


def _negated(call: OperatorCall, x: Any) -> Any:
    """TVM negates by -1, which is no number without a sign."""
    x = call.cast(x)
    if call.dtype == "uint8":
        return call.emit(relax.op.subtract(call.cast(0), x))
    return call.emit(relax.op.negative(x))


def _sign(call: OperatorCall, x: Any) -> Any:
    if call.dtype == "uint8":
        return call.emit(relax.op.minimum(x, call.cast(1)))
    return x if call.dtype == "bool" else call.emit(relax.op.sign(x))


def _with_sign_of(call: OperatorCall, x: Any, y: Any) -> Any:
    """``copysign``."""
    x = call.cast(x)
    if isinstance(y, relax.Expr):
        own = sign_bit(call, call.cast(y))
    else:
        own = relax.const(math.copysign(1, y) < 0, "bool")
    differs = relax.op.logical_xor(sign_bit(call, x), own)
    return call.emit(relax.op.where(differs, relax.op.negative(x), x))


def sign_bit(call: OperatorCall, x: Any) -> Any:
    """A zero with the sign is found by its reciprocal; that of a NaN is not told."""
    if dtype_of(x) == "bool" or dtype_of(x).startswith("uint"):
        return call.broadcast(relax.const(False, "bool"), shape_of(x))
    zero = relax.const(0, dtype_of(x))
    if is_float(dtype_of(x)):
        reciprocal = relax.op.divide(relax.const(1, dtype_of(x)), x)
        x = call.emit(relax.op.where(relax.op.equal(x, zero), reciprocal, x))
    return call.emit(relax.op.less(x, zero))


def _bitwise_not(call: OperatorCall, x: Any) -> Any:
    op = relax.op.logical_not if call.dtype == "bool" else relax.op.bitwise_not
    return call.emit(op(x))


def _logical_not(call: OperatorCall, x: Any) -> Any:
    return call.emit(relax.op.logical_not(call.cast(x, "bool")))


def _logarithm(scale: float) -> Converter:
    def convert(call: OperatorCall, x: Any) -> Any:
        return call.emit(relax.op.divide(relax.op.log(call.cast(x)), call.cast(scale)))

    return convert


def _log1p(call: OperatorCall, x: Any) -> Any:
    """Exact for small numbers: Kahan's ``x * log(u) / (u - 1)`` with ``u = 1 + x``."""
    x, one = call.cast(x), call.cast(1)
    u = call.emit(relax.op.add(x, one))
    difference = call.emit(relax.op.subtract(u, one))
    exact = relax.op.multiply(relax.op.log(u), relax.op.divide(x, difference))
    usual = relax.op.logical_and(
        relax.op.not_equal(difference, call.cast(0)), relax.op.isfinite(difference)
    )
    small = relax.op.where(relax.op.equal(difference, call.cast(0)), x, relax.op.log(u))
    return call.emit(relax.op.where(usual, exact, small))


def _expm1(call: OperatorCall, x: Any) -> Any:
    """Exact for small numbers: ``tanh(x / 2) * (exp(x) + 1)`` (Kahan)."""
    x, one = call.cast(x), call.cast(1)
    e = call.emit(relax.op.exp(x))
    near = relax.op.multiply(
        relax.op.tanh(relax.op.multiply(x, call.cast(0.5))), relax.op.add(e, one)
    )
    is_near = relax.op.less(relax.op.abs(x), call.cast(0.5))
    return call.emit(relax.op.where(is_near, near, relax.op.subtract(e, one)))


def _exp2(call: OperatorCall, x: Any) -> Any:
    return call.emit(relax.op.exp(relax.op.multiply(call.cast(x), call.cast(_LN2))))


def _rounded(call: OperatorCall, x: Any, decimals: int) -> Any:
    """Scaled by a power of ten with a positive exponent, as PyTorch does it."""
    if not is_float(call.dtype):
        call.refuse("decimals of integers cannot be rounded")
    scale = call.cast(10.0 ** abs(decimals))
    there, back = relax.op.multiply, relax.op.divide
    if decimals < 0:
        there, back = back, there
    return call.emit(back(relax.op.round(there(x, scale)), scale))


def _leaky_relu(call: OperatorCall, x: Any, slope: Any = 0.01) -> Any:
    positive = relax.op.greater(x, call.cast(0))
    return call.emit(relax.op.where(positive, x, relax.op.multiply(x, call.cast(slope))))


def _prelu(call: OperatorCall, x: Any, weight: Any) -> Any:
    """A slope for each channel, or one for all."""
    slopes = int(weight.ty.shape[0]) if weight.ty.ndim else 1
    if slopes > 1:
        weight = call.reshape(weight, (slopes, *[1] * (len(call.shape) - 2)))
    positive = relax.op.greater(x, call.cast(0))
    return call.emit(relax.op.where(positive, x, relax.op.multiply(x, weight)))


def _randomized_relu(
    call: OperatorCall,
    x: Any,
    noise: Any,
    lower: Any = 1 / 8,
    upper: Any = 1 / 3,
    training: bool = False,
) -> list[Any]:
    """The slope of what is negative is random in training, the mean otherwise."""
    if training:
        call.refuse("random slopes are not supported", "call model.eval() before the export")
    return [_leaky_relu(call, x, (lower + upper) / 2), noise]


def _elu(call: OperatorCall, x: Any, alpha: Any = 1, scale: Any = 1, inner: Any = 1) -> Any:
    scaled = x if inner == 1 else call.emit(relax.op.multiply(x, call.cast(inner)))
    below = relax.op.subtract(relax.op.exp(scaled), call.cast(1))
    negative = call.emit(relax.op.multiply(call.cast(alpha * scale), below))
    positive = x if scale == 1 else call.emit(relax.op.multiply(x, call.cast(scale)))
    return call.emit(relax.op.where(relax.op.greater(x, call.cast(0)), positive, negative))


def _gelu(call: OperatorCall, x: Any, approximate: str = "none") -> Any:
    return call.emit((relax.op.nn.gelu_tanh if approximate == "tanh" else relax.op.nn.gelu)(x))


def _hardsigmoid(call: OperatorCall, x: Any) -> Any:
    shifted = clamped(call, call.emit(relax.op.add(x, call.cast(3))), 0, 6)
    return call.emit(relax.op.divide(shifted, call.cast(6)))


def _hardswish(call: OperatorCall, x: Any) -> Any:
    return call.emit(relax.op.multiply(x, _hardsigmoid(call, x)))


def _softplus(call: OperatorCall, x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = x if beta == 1 else call.emit(relax.op.multiply(x, call.cast(beta)))
    # log(1 + exp(s)), which does not overflow, nor vanish where s is very negative.
    smooth = relax.op.add(
        relax.op.maximum(scaled, call.cast(0)),
        _log1p(call, call.emit(relax.op.exp(relax.op.negative(relax.op.abs(scaled))))),
    )
    smooth = smooth if beta == 1 else relax.op.divide(smooth, call.cast(beta))
    linear = relax.op.greater(scaled, call.cast(threshold))
    return call.emit(relax.op.where(linear, x, smooth))


def _same_bits(call: OperatorCall, x: Any, *_: Any) -> Any:
    """``view`` as another type."""
    if call.shape != shape_of(x) or "bool" in (call.dtype, dtype_of(x)):
        call.refuse("it makes elements of another size")
    return x if call.dtype == dtype_of(x) else call.compute(same_bits, x, call.dtype)


def _cast(call: OperatorCall, x: Any, *_: Any) -> Any:
    if call.dtype != "bfloat16" or dtype_of(x) not in ("float32", "float64"):
        return call.cast(x)
    return call.emit(rounded_to_bfloat16(call.compute, call.cast(x, "float32")))


CONVERTERS: dict[str, Converter] = {
    **{
        f"{name}.default": _of_result(getattr(relax.op, name))
        for name in (
            *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh"),
            *("tan", "tanh", "erf", "exp", "log", "rsqrt", "sigmoid", "sqrt", "square"),
        )
    },
    **{
        f"{name}.default": _of_floats(getattr(relax.op, name))
        for name in ("ceil", "floor", "round", "trunc")
    },
    "isinf.default": _test(relax.op.isinf),
    "isnan.default": _test(relax.op.isnan),
    "abs.default": _absolute,
    "neg.default": _negated,
    "_neg_view.default": _negated,
    "reciprocal.default": _of_result(lambda x: relax.op.divide(relax.const(1, dtype_of(x)), x)),
    "sign.default": _sign,
    "signbit.default": sign_bit,
    "copysign.Tensor": _with_sign_of,
    "copysign.Scalar": _with_sign_of,
    "bitwise_not.default": _bitwise_not,
    "logical_not.default": _logical_not,
    "log2.default": _logarithm(_LN2),
    "log10.default": _logarithm(_LN10),
    "log1p.default": _log1p,
    "expm1.default": _expm1,
    "exp2.default": _exp2,
    "round.decimals": _rounded,
    "relu.default": partial(clamped, low=0),
    "relu6.default": partial(clamped, low=0, high=6),
    "leaky_relu.default": _leaky_relu,
    "_prelu_kernel.default": _prelu,
    "prelu.default": _prelu,
    "rrelu_with_noise.default": _randomized_relu,
    "rrelu_with_noise_functional.default": _randomized_relu,
    "elu.default": _elu,
    "gelu.default": _gelu,
    "silu.default": _of_result(relax.op.nn.silu),
    "hardsigmoid.default": _hardsigmoid,
    "hardswish.default": _hardswish,
    "softplus.default": _softplus,
    "_to_copy.default": _cast,
    "view.dtype": _same_bits,
    "alias.default": _unchanged,
    "clone.default": _unchanged,
    "contiguous.default": _unchanged,
    "detach.default": _unchanged,
    "lift_fresh_copy.default": _unchanged,
}
