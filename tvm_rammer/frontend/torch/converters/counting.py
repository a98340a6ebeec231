"""How many elements there are of a kind: in the bins of a histogram, or less than another one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.torch.converters.arithmetic import common_type
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    dtype_of,
    is_float,
    shape_of,
)


def _histogram(call: OperatorCall, x: Any, bins: int = 100, low: Any = 0, high: Any = 0) -> Any:
    """Bins of one width; the last one has its upper end too, and NaN is in none."""
    count = math.prod(shape_of(x))
    if 0 in shape_of(x):
        return call.filled(call.shape, 0)
    kind = dtype_of(x) if is_float(dtype_of(x)) else "float64"
    x = call.cast(call.reshape(x, (count, 1)), kind)
    least, most = relax.const(low, kind), relax.const(high, kind)
    if low == high:
        least, most = _ends(call, x)
    steps = relax.op.multiply(relax.op.subtract(x, least), relax.const(bins, kind))
    place = relax.op.floor(relax.op.divide(steps, relax.op.subtract(most, least)))
    place = call.emit(relax.op.minimum(place, relax.const(bins - 1, kind)))
    within = relax.op.logical_and(relax.op.greater_equal(x, least), relax.op.less_equal(x, most))
    own = relax.op.equal(place, relax.const(np.arange(bins)[None], kind))
    counted = call.cast(call.emit(relax.op.logical_and(own, within)))
    return call.emit(relax.op.sum(counted, axis=[0]))


def _ends(call: OperatorCall, x: Any) -> tuple[Any, Any]:
    """The least and the largest element; what surrounds them by 1 if they are equal."""
    least, most = call.emit(relax.op.min(x)), call.emit(relax.op.max(x))
    one, zero = (relax.const(number, dtype_of(x)) for number in (1, 0))
    around = call.emit(relax.op.where(relax.op.equal(least, most), one, zero))
    return call.emit(relax.op.subtract(least, around)), call.emit(relax.op.add(most, around))


def _sorted_places(
    call: OperatorCall,
    ordered: Any,
    values: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """``searchsorted``: how many are less; a NaN is larger than all numbers."""
    if sorter is not None:
        ordered = call.emit(relax.op.gather_elements(ordered, sorter, ordered.ty.ndim - 1))
    kind = common_type(call)
    ordered, values = call.cast(ordered, kind), call.cast(values, kind)
    shape, count = call.shape, shape_of(ordered)[-1]
    if 0 in (*shape, count):
        return call.filled(shape, 0)
    if ordered.ty.ndim > 1:
        ordered = call.emit(relax.op.expand_dims(ordered, -2))
    values = call.reshape(values, (*shape, 1))
    upper = right or side == "right"
    passed = call.emit((relax.op.less_equal if upper else relax.op.less)(ordered, values))
    if is_float(kind):
        passed = call.emit(relax.op.logical_or(passed, relax.op.isnan(call.wide(values))))
    return call.emit(relax.op.sum(call.cast(passed), axis=[-1]))


def _repeated_places(call: OperatorCall, repeats: Any, *_: Any) -> Any:
    """``repeat_interleave`` of places: of every place as many as it says."""
    (count,), (given,) = call.shape, shape_of(repeats)
    if count == 0:
        return call.filled(call.shape, 0)
    if not isinstance(count, int):
        call.name_size(relax.op.sum(call.cast(repeats, "int64")), count)
    ends = call.emit(relax.op.cumsum(call.cast(repeats, "int64"), axis=0, dtype="int64"))
    passed = relax.op.greater_equal(
        call.reshape(call.counted(count), (count, 1)), call.reshape(ends, (1, given))
    )
    return call.emit(relax.op.sum(call.cast(call.emit(passed)), axis=[-1]))


CONVERTERS: dict[str, Converter] = {
    "histc.default": _histogram,
    "searchsorted.Tensor": _sorted_places,
    "searchsorted.Scalar": _sorted_places,
    "repeat_interleave.Tensor": _repeated_places,
}
