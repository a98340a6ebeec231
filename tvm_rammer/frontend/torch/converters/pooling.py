"""Pooling: maxima with or without their positions, averages with PyTorch's divisors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, topi

from tvm_rammer.frontend.sizes import as_size
from tvm_rammer.frontend.torch.converters.convolution import each
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    are_numbers,
    dtype_of,
    is_float,
    shape_of,
    table,
)
from tvm_rammer.frontend.torch.size_symbols import Size


def _with_batch(call: OperatorCall, x: Any, dimensions: int) -> Any:
    return x if x.ty.ndim == dimensions + 2 else call.emit(relax.op.expand_dims(x, 0))


def _without_batch(call: OperatorCall, pooled: Any) -> Any:
    """A result of as many axes as PyTorch's."""
    return call.reshape(pooled, call.shape) if pooled.ty.ndim > len(call.shape) else pooled


def _behind(
    call: OperatorCall,
    sizes: Sequence[Size],
    window: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
) -> list[int]:
    """Padding behind each axis, which makes as many windows as PyTorch has."""
    found = []
    counts = call.shape[-len(sizes) :]
    for length, count, size, step, before in zip(
        sizes, counts, window, stride, padding, strict=True
    ):
        if are_numbers(length, count):
            found.append(max((count - 1) * step + size - before - length, 0))
            continue
        if ceil_mode and before + step > size:
            call.refuse("of open sizes, windows may begin behind the end")
        # Each begins before the end, wherever that is.
        found.append(before + (step - 1 if ceil_mode else 0))
    return found


def _max_pool(dimensions: int) -> Converter:
    def convert(
        call: OperatorCall,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> list[Any]:
        kernel = each(kernel_size, dimensions)
        stride = each(stride or kernel, dimensions)
        padding, dilation = each(padding, dimensions), each(dilation, dimensions)
        x = _with_batch(call, x, dimensions)
        sizes, out = shape_of(x)[2:], call.shape[-dimensions:]
        if _uses_positions(call):
            lines = [
                _line(*line)
                for line in zip(sizes, out, kernel, stride, padding, dilation, strict=True)
            ]
            return _maxima(call, x, lines, sizes)
        span = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True)]
        behind = _behind(call, sizes, span, stride, padding, ceil_mode)
        pool = getattr(relax.op.nn, f"max_pool{dimensions}d")
        pooled = call.emit(pool(x, kernel, stride, padding + behind, dilation))
        return [_without_batch(call, pooled)]

    return convert


def _uses_positions(call: OperatorCall) -> bool:
    return any(
        user.op == "output" or (user.args[1] == 1 and user.users) for user in call.node.users
    )


def _line(
    length: int, out: int, size: int, stride: int, padding: int, dilation: int
) -> list[list[int]]:
    """Positions that each window along one axis covers."""
    windows = [[o * stride - padding + k * dilation for k in range(size)] for o in range(out)]
    return [[at for at in window if 0 <= at < length] for window in windows]


def _adaptive_line(length: int, out: int) -> list[list[int]]:
    return [list(range(o * length // out, -(-(o + 1) * length // out))) for o in range(out)]


def _maxima(
    call: OperatorCall, x: Any, lines: list[list[list[int]]], sizes: tuple[int, ...]
) -> list[Any]:
    """Maxima of windows and where they are in the flat image: the first of equals."""
    windows = [
        [int(np.ravel_multi_index(at, sizes)) for at in itertools.product(*window)]
        for window in itertools.product(*lines)
    ]
    longest = max(map(len, windows))
    # A shorter window has its first position several times: neither result changes.
    positions = np.array([window + window[:1] * (longest - len(window)) for window in windows])
    flat = call.reshape(x, (*shape_of(x)[:2], math.prod(sizes)))
    spread = call.take(flat, table(positions), 2)
    best = call.cast(call.emit(relax.op.argmax(spread, axis=3)), "int64")
    row = table(np.arange(len(windows)) * longest)
    chosen = call.emit(relax.op.take(table(positions.ravel()), relax.op.add(best, row), 0))
    values = call.emit(relax.op.max(spread, axis=3))
    return [call.reshape(values, call.shape), call.reshape(chosen, call.shape)]


def _adaptive_max_pool(call: OperatorCall, x: Any, output_size: list[int]) -> list[Any]:
    dimensions = len(output_size)
    x = _with_batch(call, x, dimensions)
    sizes = shape_of(x)[2:]
    if not _uses_positions(call):
        return [_without_batch(call, _adaptive_pool(call, x, dimensions, "max"))]
    lines = [_adaptive_line(n, out) for n, out in zip(sizes, call.shape[-dimensions:], strict=True)]
    return _maxima(call, x, lines, sizes)


def _adaptive_pool(call: OperatorCall, x: Any, dimensions: int, kind: str) -> Any:
    """Averages or maxima of the windows that cut each axis in as many parts as it shall have."""
    if shape_of(x)[2:] == call.shape[-dimensions:]:
        return x
    pool = {2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}[dimensions]
    out = [as_size(size) for size in call.shape[-dimensions:]]
    return call.compute(lambda x, out: pool(x, out, kind), x, out)


def _average_pool(dimensions: int) -> Converter:
    def convert(
        call: OperatorCall,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if not is_float(dtype_of(x)):
            call.refuse("averages of integers cannot be computed")
        kernel = each(kernel_size, dimensions)
        stride = each(stride or kernel, dimensions)
        padding = each(padding, dimensions)
        x = call.wide(_with_batch(call, x, dimensions))
        sizes, out = shape_of(x)[2:], call.shape[-dimensions:]
        behind = _behind(call, sizes, kernel, stride, padding, ceil_mode)
        pool = getattr(relax.op.nn, f"avg_pool{dimensions}d")
        if not are_numbers(*sizes, *out):
            counts_all = count_include_pad and any(padding)
            if counts_all and ceil_mode:
                call.refuse("of open sizes, padding and what lies behind it weigh differently")
            counts_all |= divisor_override is not None
            pooled = call.emit(
                pool(x, kernel, stride, padding + behind, count_include_pad=counts_all)
            )
            if divisor_override is not None:
                factor = relax.const(math.prod(kernel) / divisor_override, dtype_of(x))
                pooled = call.emit(relax.op.multiply(pooled, factor))
            return call.cast(_without_batch(call, pooled))
        pooled = call.emit(pool(x, kernel, stride, padding + behind, count_include_pad=True))
        counted = padding if count_include_pad else [0] * dimensions
        counts = [
            [
                min(o * step - before + size, length + more) - max(o * step - before, -more)
                for o in range(count)
            ]
            for length, count, size, step, before, more in zip(
                sizes, out, kernel, stride, padding, counted, strict=True
            )
        ]
        divisors = math.prod(np.ix_(*map(np.array, counts)))
        if divisor_override is not None:
            divisors = np.full_like(divisors, divisor_override)
        if np.any(divisors != math.prod(kernel)):
            factors = np.divide(math.prod(kernel), divisors)[None, None]
            pooled = call.emit(relax.op.multiply(pooled, relax.const(factors, dtype_of(x))))
        return call.cast(call.reshape(pooled, call.shape))

    return convert


def _adaptive_average_pool(call: OperatorCall, x: Any, output_size: list[int]) -> Any:
    dimensions = len(output_size)
    x = call.wide(_with_batch(call, x, dimensions))
    if all(size == 1 for size in output_size):
        axes = list(range(2, 2 + dimensions))
        pooled = call.emit(relax.op.mean(x, axes, keepdims=True))
    else:
        pooled = _adaptive_pool(call, x, dimensions, "avg")
    return call.cast(_without_batch(call, pooled))


CONVERTERS: dict[str, Converter] = {
    "max_pool2d_with_indices.default": _max_pool(2),
    "max_pool3d_with_indices.default": _max_pool(3),
    "adaptive_max_pool2d.default": _adaptive_max_pool,
    "adaptive_max_pool3d.default": _adaptive_max_pool,
    "avg_pool1d.default": _average_pool(1),
    "avg_pool2d.default": _average_pool(2),
    "avg_pool3d.default": _average_pool(3),
    "_adaptive_avg_pool2d.default": _adaptive_average_pool,
    "_adaptive_avg_pool3d.default": _adaptive_average_pool,
}
