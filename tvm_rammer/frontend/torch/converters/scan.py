"""Running results along an axis: of each element with all before it.

In steps of 1, 2, 4, ... elements, each an element-wise operation of the whole tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.torch.converters.layout import sliced
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    dtype_of,
    is_float,
    shape_of,
)

#: What becomes of results of earlier elements and of those of later ones.
_Combine = Callable[[OperatorCall, list[Any], list[Any]], Sequence[Any]]


def _scanned(call: OperatorCall, values: list[Any], axis: int, combine: _Combine) -> list[Any]:
    """An associative combination, of one or of several tensors together."""
    size, step = shape_of(values[0])[axis], 1
    while step < size:
        earlier = [sliced(call, value, axis, 0, size - step) for value in values]
        later = [sliced(call, value, axis, step) for value in values]
        whole = combine(call, earlier, later)
        begun = [sliced(call, value, axis, 0, step) for value in values]
        values = [
            call.emit(relax.op.concat(parts, axis)) for parts in zip(begun, whole, strict=True)
        ]
        step *= 2
    return values


def _extremum(better: Callable[..., Any]) -> Converter:
    """``cummax`` and ``cummin``: the last of equals, and a NaN from where the first one is."""

    def combine(call: OperatorCall, earlier: list[Any], later: list[Any]) -> list[Any]:
        stays = better(earlier[0], later[0])
        if is_float(dtype_of(earlier[0])):
            unknown, known = relax.op.isnan(earlier[0]), relax.op.isnan(later[0])
            stays = relax.op.logical_and(
                relax.op.logical_or(stays, unknown), relax.op.logical_not(known)
            )
        stays = call.emit(stays)
        return [
            call.emit(relax.op.where(stays, before, after))
            for before, after in zip(earlier, later, strict=True)
        ]

    def convert(call: OperatorCall, x: Any, dim: int) -> list[Any]:
        shape, kind = shape_of(x), dtype_of(x)
        if not shape:
            return [x, relax.const(0, "int64")]
        if 0 in shape:
            return [x, call.emit(relax.op.zeros(shape, "int64"))]
        axis = dim % len(shape)
        places = np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
        numbers = call.broadcast(relax.const(places, "int64"), shape)
        values = call.cast(x, "int8") if kind == "bool" else x
        extremum, place = _scanned(call, [values, numbers], axis, combine)
        return [call.cast(extremum, kind), place]

    return convert


def _logarithm_of_sum(call: OperatorCall, x: Any, dim: int) -> Any:
    """``logcumsumexp``, without exponentials that overflow."""
    if not shape_of(x) or 0 in shape_of(x):
        return x
    (result,) = _scanned(call, [call.wide(x)], dim % len(shape_of(x)), _added_logarithms)
    return call.cast(result)


def _added_logarithms(call: OperatorCall, earlier: list[Any], later: list[Any]) -> list[Any]:
    """``log(exp(a) + exp(b))``; a NaN stays."""
    a, b = earlier[0], later[0]
    kind = dtype_of(a)
    most = call.emit(relax.op.maximum(a, b))
    apart = relax.op.exp(relax.op.negative(relax.op.abs(relax.op.subtract(a, b))))
    total = relax.op.add(most, relax.op.log(relax.op.add(relax.const(1, kind), apart)))
    # Of two infinities of one sign that is the result.
    result = relax.op.where(
        relax.op.equal(a, b), relax.op.add(a, relax.const(np.log(2), kind)), total
    )
    return [call.emit(result)]


CONVERTERS: dict[str, Converter] = {
    "cummax.default": _extremum(relax.op.greater),
    "cummin.default": _extremum(relax.op.less),
    "logcumsumexp.default": _logarithm_of_sum,
}
