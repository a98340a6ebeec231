"""Normalisations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, dtype_of, shape_of

#: Types that Relax's layer_norm can be built for; its group_norm adds up in the operand's type.
_WITH_OPERATORS = ("float32", "float16")


def _or_constant(x: Any, value: float, shape: tuple[int, ...], dtype: str) -> Any:
    return x if x is not None else relax.const(np.full(shape, value), dtype)


def _batch_norm(
    call: OperatorCall, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, _: Any, eps: float
) -> Any:
    """By the statistics of the training."""
    channels, dtype = shape_of(x)[1:2], dtype_of(x)
    weight = _or_constant(weight, 1, channels, dtype)
    bias = _or_constant(bias, 0, channels, dtype)
    normalized = call.emit(
        relax.op.nn.batch_norm(x, weight, bias, mean, variance, 1, eps, training=False)
    )
    return call.only(call.emit(normalized[0]))


def _by_own_statistics(
    call: OperatorCall, x: Any, weight: Any, bias: Any, _: Any, __: Any, eps: float
) -> Any:
    """``batch_norm`` and ``instance_norm`` without statistics of the training."""
    shape = shape_of(x)
    along = (1, shape[1], *[1] * (len(shape) - 2))
    result = _standardized(call, x, [0, *range(2, len(shape))], eps)
    return call.only(_scaled_and_shifted(call, result, weight, bias, along))


def _standardized(call: OperatorCall, x: Any, axes: list[int], eps: float) -> Any:
    """With a mean of 0 and a variance of 1 over axes; in float32 at least."""
    if dtype_of(x) != "float64":
        x = call.cast(x, "float32")
    centred = call.emit(relax.op.subtract(x, relax.op.mean(x, axes, keepdims=True)))
    variance = relax.op.mean(relax.op.multiply(centred, centred), axes, keepdims=True)
    deviation = relax.op.sqrt(relax.op.add(variance, relax.const(eps, dtype_of(x))))
    return call.cast(call.emit(relax.op.divide(centred, deviation)))


def _scaled_and_shifted(
    call: OperatorCall, x: Any, weight: Any, bias: Any, shape: tuple[int, ...]
) -> Any:
    if weight is not None:
        x = call.emit(relax.op.multiply(x, call.reshape(weight, shape)))
    if bias is not None:
        x = call.emit(relax.op.add(x, call.reshape(bias, shape)))
    return x


def _in_training(call: OperatorCall, *_: Any) -> Any:
    return call.refuse("it normalises by the batch and changes statistics, as in training")


def _layer_norm(
    call: OperatorCall, x: Any, shape: list[int], weight: Any, bias: Any, eps: float
) -> Any:
    sizes, dtype = tuple(shape), dtype_of(x)
    if dtype not in _WITH_OPERATORS:
        axes = list(range(x.ty.ndim - len(sizes), x.ty.ndim))
        result = _standardized(call, x, axes, eps)
        return call.only(_scaled_and_shifted(call, result, weight, bias, sizes))
    weight = _or_constant(weight, 1, sizes, dtype)
    bias = _or_constant(bias, 0, sizes, dtype)
    axes = list(range(-len(sizes), 0))
    return call.only(call.emit(relax.op.nn.layer_norm(x, weight, bias, axes, eps)))


def _group_norm(
    call: OperatorCall,
    x: Any,
    weight: Any,
    bias: Any,
    _: int,
    channels: int,
    __: int,
    groups: int,
    eps: float,
) -> Any:
    dtype, shape = dtype_of(x), shape_of(x)
    if dtype != "float32":
        grouped = call.reshape(x, (shape[0], groups, math.prod(shape[1:]) // groups))
        result = call.reshape(_standardized(call, grouped, [2], eps), shape)
        along = (channels, *[1] * (len(shape) - 2))
        return call.only(_scaled_and_shifted(call, result, weight, bias, along))
    weight = _or_constant(weight, 1, (channels,), dtype)
    bias = _or_constant(bias, 0, (channels,), dtype)
    if len(shape) == 2:
        x = call.reshape(x, (*shape, 1))
    axes = list(range(2, x.ty.ndim))
    normalized = call.emit(relax.op.nn.group_norm(x, weight, bias, groups, 1, axes, eps))
    return call.only(call.reshape(normalized, shape))


CONVERTERS: dict[str, Converter] = {
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "_native_batch_norm_legit.no_stats": _by_own_statistics,
    "_native_batch_norm_legit_functional.default": _in_training,
    "native_layer_norm.default": _layer_norm,
    "native_group_norm.default": _group_norm,
}
