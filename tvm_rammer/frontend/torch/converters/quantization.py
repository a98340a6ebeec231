"""Changes of scale, of programs that were quantised before or while they were exported.

They are operators of ``torch.ops.quantized_decomposed``, one scale for all elements or one for each
slice along an axis. Between them such a program computes in floats. Programs that were trained to
be quantised have ``fake_quantize``, there and back in one. Weights of 8 bits become floats here;
what is worth to be kept short is found later, by the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, dtype_of, shape_of


def _quantize(
    call: OperatorCall, x: Any, scale: Any, zero_point: Any, least: int, most: int
) -> Any:
    """``clamp(round(x * (1 / scale)) + zero_point, least, most)``, as eager mode multiplies."""
    return _steps(call, x, _inverse(call, scale), zero_point, -1, least, most)


def _quantize_channels(
    call: OperatorCall, x: Any, scales: Any, zero_points: Any, axis: int, least: int, most: int
) -> Any:
    inverses = call.reshape(_inverse(call, scales), _along(x, axis))
    return _steps(call, x, inverses, zero_points, axis % len(shape_of(x)), least, most)


def _steps(
    call: OperatorCall, x: Any, inverse: Any, zero_point: Any, axis: int, least: int, most: int
) -> Any:
    dtype = call.dtype
    scaled = call.emit(relax.op.multiply(call.cast(x, "float32"), inverse))
    one, point = relax.const(1.0, "float32"), call.cast(zero_point, "int32")
    found = call.emit(relax.op.quantize(scaled, one, point, axis, dtype))
    limits = np.iinfo(dtype)
    if (least, most) == (limits.min, limits.max):
        return found
    return call.emit(relax.op.clip(found, max(least, int(limits.min)), min(most, int(limits.max))))


def _dequantize(call: OperatorCall, x: Any, scale: Any, zero_point: Any) -> Any:
    """``(x - zero_point) * scale``."""
    return _real(call, x, scale, zero_point, -1)


def _dequantize_channels(
    call: OperatorCall, x: Any, scales: Any, zero_points: Any, axis: int
) -> Any:
    points = 0 if zero_points is None else zero_points
    return _real(call, x, scales, points, axis % len(shape_of(x)))


def _real(call: OperatorCall, x: Any, scale: Any, zero_point: Any, axis: int) -> Any:
    operands = call.cast(scale, "float32"), call.cast(zero_point, "int32")
    return call.cast(call.emit(relax.op.dequantize(x, *operands, axis, "float32")))


def _fake_quantize(
    call: OperatorCall, x: Any, scale: Any, zero_point: Any, least: int, most: int
) -> Any:
    """``(clamp(round(x * (1 / scale)) + zero_point, least, most) - zero_point) * scale``."""
    return call.only(_there_and_back(call, x, scale, zero_point, least, most))


def _fake_quantize_where(
    call: OperatorCall, x: Any, scale: Any, zero_point: Any, enabled: Any, least: int, most: int
) -> Any:
    found = _there_and_back(call, x, scale, zero_point, least, most)
    return call.only(call.emit(relax.op.where(call.cast(enabled, "bool"), found, x)))


def _fake_quantize_channels(
    call: OperatorCall, x: Any, scales: Any, zero_points: Any, axis: int, least: int, most: int
) -> Any:
    scale, point = (call.reshape(values, _along(x, axis)) for values in (scales, zero_points))
    return call.only(_there_and_back(call, x, scale, point, least, most))


def _there_and_back(
    call: OperatorCall, x: Any, scale: Any, zero_point: Any, least: int, most: int
) -> Any:
    scale, point = (call.cast(value, "float32") for value in (scale, zero_point))
    # Eager mode multiplies by the inverse, in single precision whatever the scale is.
    inverse = call.emit(relax.op.divide(relax.const(1.0, "float32"), scale))
    scaled = call.emit(relax.op.multiply(call.cast(x, "float32"), inverse))
    steps = call.emit(relax.op.add(call.emit(relax.op.round(scaled)), point))
    kept = call.emit(relax.op.clip(steps, least, most))
    centred = call.emit(relax.op.subtract(kept, point))
    return call.cast(call.emit(relax.op.multiply(centred, scale)), dtype_of(x))


def _product_with_bytes(call: OperatorCall, x: Any, weights: Any, scales: Any) -> Any:
    """``x @ weights.T * scales``."""
    columns = call.permute(call.cast(weights, "float32"), (1, 0))
    product = call.emit(relax.op.matmul(call.wide(x), columns))
    return call.cast(call.emit(relax.op.multiply(product, call.wide(scales))))


def _along(x: Any, axis: int) -> list[int]:
    """The shape in which a vector meets the slices of a tensor along an axis."""
    shape = shape_of(x)
    axis %= len(shape)
    return [size if place == axis else 1 for place, size in enumerate(shape)]


def _inverse(call: OperatorCall, scale: Any) -> Any:
    if not isinstance(scale, relax.Expr):
        # Python divides numbers in double precision.
        return relax.const(1.0 / scale, "float32")
    one = relax.const(1.0, dtype_of(scale))
    return call.cast(call.emit(relax.op.divide(one, scale)), "float32")


CONVERTERS: dict[str, Converter] = {
    "quantize_per_tensor.default": _quantize,
    "quantize_per_tensor.tensor": _quantize,
    "quantize_per_channel.default": _quantize_channels,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_tensor.tensor": _dequantize,
    "dequantize_per_channel.default": _dequantize_channels,
    "fake_quantize_per_tensor_affine_cachemask.default": _fake_quantize,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": _fake_quantize_where,
    "fake_quantize_per_channel_affine_cachemask.default": _fake_quantize_channels,
    "_weight_int8pack_mm.default": _product_with_bytes,
}
