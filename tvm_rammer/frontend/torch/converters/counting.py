"""How many elements there are of a kind: in the bins of a histogram, below a limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

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
    if not count:
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


CONVERTERS: dict[str, Converter] = {
    "histc.default": _histogram,
}
