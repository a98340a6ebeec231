"""Products of matrices."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_rammer.frontend.torch.converters.reduction import vector_norm
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    dtype_of,
    shape_of,
    wide_dtype,
)


def product(call: OperatorCall, x: Any, y: Any) -> Any:
    """A product of matrices in the result's type, added up in float32 at least."""
    x, y = call.cast(x), call.cast(y)
    wide = wide_dtype(dtype_of(x))
    return call.cast(call.emit(relax.op.matmul(x, y, wide if wide != dtype_of(x) else None)))


def _product_and_sum(
    call: OperatorCall, added: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1
) -> Any:
    """``beta * added + alpha * (x @ y)``; with a beta of 0, ``added`` may hold anything."""
    scaled = _scaled(call, product(call, x, y), alpha)
    if beta == 0:
        return scaled
    return call.emit(relax.op.add(scaled, _scaled(call, added, beta)))


def _sum_of_products(
    call: OperatorCall, added: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1
) -> Any:
    """``beta * added + alpha * (x @ y)``, a batch added up as one product of longer rows."""
    count, rows, inner = shape_of(x)
    columns = shape_of(y)[-1]
    x = call.reshape(call.permute(x, [1, 0, 2]), (rows, count * inner))
    return _product_and_sum(call, added, x, call.reshape(y, (count * inner, columns)), beta, alpha)


def _scaled(call: OperatorCall, x: Any, factor: Any) -> Any:
    return x if factor == 1 else call.emit(relax.op.multiply(x, call.cast(factor)))


def _distances(call: OperatorCall, x: Any, y: Any, order: float, *_: Any) -> Any:
    rows = call.emit(relax.op.expand_dims(x, -2))
    columns = call.emit(relax.op.expand_dims(y, -3))
    return vector_norm(call, call.emit(relax.op.subtract(rows, columns)), order, [-1])


def _integer_product(call: OperatorCall, x: Any, y: Any) -> Any:
    return call.emit(relax.op.matmul(x, y, call.dtype))


def _product_of_three(
    call: OperatorCall,
    x: Any,
    y: Any,
    z: Any,
    expand_x: list[int],
    expand_y: list[int],
    expand_z: list[int],
    summed: list[int],
    *_: Any,
) -> Any:
    """Of tensors with new axes, added up along some."""
    parts = [
        call.wide(call.emit(relax.op.expand_dims(tensor, sorted(axes))) if axes else tensor)
        for tensor, axes in ((x, expand_x), (y, expand_y), (z, expand_z))
    ]
    whole = call.emit(relax.op.multiply(relax.op.multiply(parts[0], parts[1]), parts[2]))
    return call.cast(call.emit(relax.op.sum(whole, axis=summed)) if summed else whole)


CONVERTERS: dict[str, Converter] = {
    "mm.default": product,
    "bmm.default": product,
    "mv.default": product,
    "dot.default": product,
    "addmm.default": _product_and_sum,
    "baddbmm.default": _product_and_sum,
    "addbmm.default": _sum_of_products,
    "_cdist_forward.default": _distances,
    "_int_mm.default": _integer_product,
    "_trilinear.default": _product_of_three,
}
