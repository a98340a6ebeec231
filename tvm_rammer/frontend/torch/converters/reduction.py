"""Sums, maxima, and what is found along an axis: cumulation, order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    dtype_of,
    is_float,
    shape_of,
)

#: Types that TVM's runtime has a sort for.
_SORTED = ("float32", "float64", "int32", "int64")


def axes_of(x: Any, dim: Any) -> list[int]:
    """Axes that count from 0; None and an empty list mean all."""
    rank = len(shape_of(x))
    if dim is None or dim == []:
        return list(range(rank))
    return sorted(axis % max(rank, 1) for axis in (dim if isinstance(dim, list) else [dim]))


def _reduced(call: OperatorCall, op: Callable[..., Any], x: Any, dim: Any, keepdim: bool) -> Any:
    if not shape_of(x):
        return x
    axes = axes_of(x, dim)
    if op in (relax.op.mean, relax.op.variance) and any(shape_of(x)[k] == 0 for k in axes):
        return call.filled(call.shape, math.nan)
    return call.emit(op(x, axis=axes, keepdims=keepdim))


def _of_result(op: Callable[..., Any], wide: bool = True) -> Converter:
    """A reduction in the result's type: PyTorch sums booleans and small integers as int64.

    A wide one is computed in a larger type where that is one of 16-bit floats.
    """

    def convert(call: OperatorCall, x: Any, dim: Any = None, keepdim: bool = False, *_: Any) -> Any:
        x = call.cast(x)
        return call.cast(_reduced(call, op, call.wide(x) if wide else x, dim, keepdim))

    return convert


def _of_all(op: Callable[..., Any], wide: bool = True) -> Converter:
    along = _of_result(op, wide)
    return lambda call, x, *_: along(call, x)


def _extremum(op: Callable[..., Any]) -> Converter:
    def convert(call: OperatorCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dtype_of(x) == "bool":
            return call.cast(_reduced(call, op, call.cast(x, "int8"), dim, keepdim), "bool")
        return _reduced(call, op, x, dim, keepdim)

    return convert


def _any(call: OperatorCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """No axes are no reduction here, where other operators take all; of uint8 it is uint8."""
    # Of nothing the largest is the least there is, and that is false.
    true = call.cast(call.cast(x, "bool"), "uint8")
    found = true if dim == [] else _reduced(call, relax.op.max, true, dim, keepdim)
    return call.cast(call.cast(found, "bool"))


def _variance(
    call: OperatorCall, x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Any:
    x = call.wide(x)
    if not shape_of(x):
        x, dim, keepdim = call.reshape(x, (1,)), None, False
    count = math.prod(shape_of(x)[axis] for axis in axes_of(x, dim))
    variance = _reduced(call, relax.op.variance, x, dim, keepdim)
    scale = _per_degree_of_freedom(call, count, 1 if correction is None else correction, x)
    return call.cast(call.emit(relax.op.multiply(variance, scale)))


def _per_degree_of_freedom(call: OperatorCall, count: Any, correction: float, x: Any) -> Any:
    """What a mean of squares is multiplied by."""
    dtype = dtype_of(x)
    if isinstance(count, int):
        freedom = count - correction
        return relax.const(count / freedom if freedom > 0 else math.nan, dtype)
    count = call.cast(count, dtype)
    least, lost = relax.const(0, dtype), relax.const(correction, dtype)
    freedom = relax.op.maximum(relax.op.subtract(count, lost), least)
    # Of no degrees of freedom the variance is not a number, which 0 / 0 is too.
    nothing = relax.op.equal(freedom, least)
    count = relax.op.where(nothing, relax.const(math.nan, dtype), count)
    return call.emit(relax.op.divide(count, freedom))


def _variance_and_mean(
    call: OperatorCall, x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> list[Any]:
    variance = _variance(call, x, dim, correction, keepdim)
    return [variance, call.cast(_reduced(call, relax.op.mean, call.wide(x), dim, keepdim))]


def vector_norm(
    call: OperatorCall, x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, *_: Any
) -> Any:
    """``torch.linalg.vector_norm`` for any order."""
    return call.cast(_norm(call, call.wide(call.cast(x)), order, dim, keepdim))


def _norm(call: OperatorCall, x: Any, order: Any, dim: Any, keepdim: bool) -> Any:
    dtype = dtype_of(x)
    if order == 2:
        squares = call.emit(relax.op.multiply(x, x))
        return call.emit(relax.op.sqrt(_reduced(call, relax.op.sum, squares, dim, keepdim)))
    if order == 0:
        there = call.cast(call.emit(relax.op.not_equal(x, relax.const(0, dtype))), dtype)
        return _reduced(call, relax.op.sum, there, dim, keepdim)
    sizes = call.emit(relax.op.abs(x))
    if math.isinf(order):
        op = relax.op.max if order > 0 else relax.op.min
        return _reduced(call, op, sizes, dim, keepdim)
    if order == 1:
        return _reduced(call, relax.op.sum, sizes, dim, keepdim)
    powers = call.emit(relax.op.power(sizes, relax.const(order, dtype)))
    total = _reduced(call, relax.op.sum, powers, dim, keepdim)
    return call.emit(relax.op.power(total, relax.const(1 / order, dtype)))


def _position(op: Callable[..., Any]) -> Converter:
    """``argmax`` and ``argmin``: the first of equals; of the flat tensor without ``dim``."""

    def convert(call: OperatorCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dtype_of(x) == "bool":
            x = call.cast(x, "int8")
        if dim is None or not shape_of(x):
            x, dim, keepdim = call.reshape(x, (math.prod(shape_of(x)),)), 0, False
        found = call.emit(op(x, axis=axes_of(x, dim)[0], keepdims=keepdim))
        return call.reshape(call.cast(found, "int64"), call.shape)

    return convert


def _value_and_position(op: Callable[..., Any], position: Callable[..., Any]) -> Converter:
    """``max`` and ``min`` along an axis."""

    def convert(call: OperatorCall, x: Any, dim: Any, keepdim: bool = False) -> Any:
        value = _extremum(op)(call, x, dim, keepdim)
        return [value, _position(position)(call, x, dim, keepdim)]

    return convert


def _cumulated(op: Callable[..., Any]) -> Converter:
    def convert(call: OperatorCall, x: Any, dim: int, *_: Any) -> Any:
        if not shape_of(x):
            return call.cast(x)
        wide = call.wide(call.cast(x))
        return call.cast(call.emit(op(wide, axis=axes_of(x, dim)[0], dtype=dtype_of(wide))))

    return convert


def _sortable(call: OperatorCall, x: Any) -> Any:
    """A tensor in a type that TVM can sort, in the same order."""
    if dtype_of(x) in _SORTED:
        return x
    return call.cast(x, "float32" if is_float(dtype_of(x)) else "int32")


def _largest(
    call: OperatorCall, x: Any, k: int, dim: int = -1, largest: bool = True, *_: Any
) -> Any:
    if k == 0:
        call.refuse("it asks for no elements")
    axis = axes_of(x, dim)[0]
    both = call.emit(relax.op.topk(_sortable(call, x), k, axis, "both", largest, "int64"))
    return [call.cast(call.emit(both[0])), call.emit(both[1])]


def _sorted(call: OperatorCall, x: Any, dim: int = -1, descending: bool = False) -> list[Any]:
    axis = axes_of(x, dim)[0]
    sortable = _sortable(call, x)
    order = call.emit(relax.op.argsort(sortable, axis, descending, "int64"))
    return [
        call.cast(call.emit(relax.op.gather_elements(sortable, order, axis)), dtype_of(x)),
        order,
    ]


def _stably_sorted(
    call: OperatorCall, x: Any, stable: Any, dim: int = -1, descending: bool = False
) -> list[Any]:
    return _sorted(call, x, dim, descending)


def _at_rank(call: OperatorCall, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> list[Any]:
    """``kthvalue``: the k-th smallest, from 1 on."""
    if not shape_of(x):
        return [x, relax.const(0, "int64")]
    axis = axes_of(x, dim)[0]
    found = [call.take(part, relax.const(k - 1, "int64"), axis) for part in _sorted(call, x, axis)]
    return [call.reshape(part, call.shape) for part in found]


def _median(call: OperatorCall, x: Any, dim: int, keepdim: bool = False) -> list[Any]:
    """The lower of the two in the middle, or the first NaN."""
    if not shape_of(x):
        return _at_rank(call, x, 1, dim)
    axis = axes_of(x, dim)[0]
    found = _at_rank(call, x, (shape_of(x)[axis] + 1) // 2, dim)
    if not is_float(dtype_of(x)):
        return found
    unknown = call.cast(call.emit(relax.op.isnan(call.wide(x))), "int8")
    some = call.emit(relax.op.max(unknown, axis=[axis], keepdims=True))
    some = call.cast(call.reshape(some, call.shape), "bool")
    first = call.reshape(call.emit(relax.op.argmax(unknown, axis, True)), call.shape)
    return [
        call.emit(relax.op.where(some, relax.const(math.nan, dtype_of(x)), found[0])),
        call.emit(relax.op.where(some, call.cast(first, "int64"), found[1])),
    ]


def _median_of_all(call: OperatorCall, x: Any) -> Any:
    return _median(call, call.reshape(x, (math.prod(shape_of(x)),)), 0)[0]


def _softmax(op: Callable[..., Any]) -> Converter:
    def convert(call: OperatorCall, x: Any, dim: int, *_: Any) -> Any:
        if not is_float(dtype_of(x)) or not shape_of(x):
            call.refuse("its operand must be a tensor of floats with an axis")
        return call.cast(call.emit(op(call.wide(call.cast(x)), axes_of(x, dim)[0])))

    return convert


def _safe_softmax(call: OperatorCall, x: Any, dim: int, *_: Any) -> Any:
    """A softmax that gives zeros where everything in a row is minus infinity.

    Integers say so: not every back end's largest of such a row is minus infinity.
    """
    weights = _softmax(relax.op.nn.softmax)(call, x, dim)
    infinity = relax.const(float("-inf"), dtype_of(x))
    counts = call.cast(call.emit(relax.op.not_equal(x, infinity)), "uint8")
    some = call.emit(relax.op.max(counts, axes_of(x, dim), keepdims=True))
    nothing = call.emit(relax.op.equal(some, relax.const(0, "uint8")))
    return call.emit(relax.op.where(nothing, relax.const(0.0, dtype_of(weights)), weights))


CONVERTERS: dict[str, Converter] = {
    "sum.default": _of_all(relax.op.sum),
    "sum.dim_IntList": _of_result(relax.op.sum),
    "mean.default": _of_all(relax.op.mean),
    "mean.dim": _of_result(relax.op.mean),
    "prod.default": _of_all(relax.op.prod, wide=False),
    "prod.dim_int": _of_result(relax.op.prod, wide=False),
    "amax.default": _extremum(relax.op.max),
    "amin.default": _extremum(relax.op.min),
    "max.default": _extremum(relax.op.max),
    "min.default": _extremum(relax.op.min),
    "max.dim": _value_and_position(relax.op.max, relax.op.argmax),
    "min.dim": _value_and_position(relax.op.min, relax.op.argmin),
    "argmax.default": _position(relax.op.argmax),
    "argmin.default": _position(relax.op.argmin),
    "any.default": _any,
    "any.dim": _any,
    "any.dims": _any,
    "var.correction": _variance,
    "var_mean.correction": _variance_and_mean,
    "kthvalue.default": _at_rank,
    "median.dim": _median,
    "median.default": _median_of_all,
    "linalg_vector_norm.default": vector_norm,
    "cumsum.default": _cumulated(relax.op.cumsum),
    "cumprod.default": _cumulated(relax.op.cumprod),
    "topk.default": _largest,
    "sort.default": _sorted,
    "sort.stable": _stably_sorted,
    "_softmax.default": _softmax(relax.op.nn.softmax),
    "_safe_softmax.default": _safe_softmax,
    "_log_softmax.default": _softmax(relax.op.nn.log_softmax),
}
