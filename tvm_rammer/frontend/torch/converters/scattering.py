"""A tensor with some of its elements replaced or added to."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_rammer.frontend.torch.converters.indexing import Joined, joined
from tvm_rammer.frontend.torch.converters.layout import from_front, sliced
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    are_numbers,
    dtype_of,
    is_float,
    shape_of,
    table,
)

_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


def _put(
    call: OperatorCall, x: Any, indices: list[Any], values: Any, accumulate: bool = False
) -> Any:
    """``x[indices] = values``, or ``+=``."""
    given = [index for index in indices if index is not None]
    if len(given) == 1 and dtype_of(given[0]) == "bool":
        return _put_where(call, x, indices, values, accumulate)
    parts = joined(call, x, indices)
    shape, drawn = shape_of(parts.tensor), shape_of(parts.positions)
    rest = (shape[: parts.axis], shape[parts.axis + 1 :])
    values = call.broadcast(call.cast(values), (*rest[0], *drawn, *rest[1]))
    if math.prod(drawn) == 1:
        values = call.reshape(values, (*rest[0], 1, *rest[1]))
        whole = _put_one(call, parts, values, accumulate)
    else:
        whole = _put_several(call, parts, values, accumulate)
    if parts.order is None:
        return call.reshape(whole, call.shape)
    whole = call.reshape(whole, [call.shape[k] for k in parts.order])
    return call.permute(whole, np.argsort(parts.order).tolist())


def _put_one(call: OperatorCall, parts: Joined, values: Any, accumulate: bool) -> Any:
    """At one place, such as a token's among a decoder's keys: a choice, which others fuse with."""
    tensor, axis = parts.tensor, parts.axis
    places = np.arange(shape_of(tensor)[axis])
    places = places.reshape([-1 if k == axis else 1 for k in range(tensor.ty.ndim)])
    here = call.emit(relax.op.equal(table(places), call.reshape(parts.positions, ())))
    new = call.emit(relax.op.add(tensor, values)) if accumulate else values
    return call.emit(relax.op.where(here, new, tensor))


def _put_several(call: OperatorCall, parts: Joined, values: Any, accumulate: bool) -> Any:
    axis, positions, tensor = parts.axis, parts.positions, parts.tensor
    shape, drawn = shape_of(tensor), shape_of(positions)
    # The indexed axis goes to the front, where scatter_nd wants it.
    inner = list(range(axis, axis + len(drawn)))
    values = call.permute(values, inner + [k for k in range(values.ty.ndim) if k not in inner])
    front = [axis, *(k for k in range(len(shape)) if k != axis)]
    tensor = call.permute(tensor, front)
    count = math.prod(drawn)
    rest = shape_of(tensor)[1:]
    scattered = call.emit(
        relax.op.scatter_nd(
            tensor,
            call.reshape(positions, (count, 1)),
            call.reshape(values, (count, *rest)),
            "add" if accumulate else "update",
        )
    )
    return call.permute(scattered, np.argsort(front).tolist())


def _put_where(
    call: OperatorCall, x: Any, indices: list[Any], values: Any, accumulate: bool
) -> Any:
    """A mask, and what the places get that it selects: all the same, or one row after the other."""
    axis = next(k for k, index in enumerate(indices) if index is not None)
    mask, values = indices[axis], call.cast(values)
    behind = len(call.shape) - axis - mask.ty.ndim
    if axis and values.ty.ndim > behind:
        call.refuse("a mask behind other axes takes the same for all that it selects")
    if values.ty.ndim > behind:
        if shape_of(values)[0] == 1:
            values = call.reshape(values, shape_of(values)[1:])
        else:
            values = _in_turn(call, mask, values)
    mask = call.reshape(mask, (*shape_of(mask), *[1] * behind))
    new = call.emit(relax.op.add(x, values)) if accumulate else values
    return call.emit(relax.op.where(mask, new, x))


def _in_turn(call: OperatorCall, mask: Any, values: Any) -> Any:
    """For each place of a mask the row that it gets: the first where it holds first, and so on."""
    count = math.prod(shape_of(mask))
    flat = call.cast(call.reshape(mask, (count,)), "int64")
    before = call.emit(relax.op.cumsum(flat, axis=0, dtype="int64"))
    # Of those that no row goes to, which is not read.
    place = call.emit(relax.op.maximum(relax.op.subtract(before, table(1)), table(0)))
    rows = call.take(values, place, 0)
    return call.reshape(rows, (*shape_of(mask), *shape_of(values)[1:]))


def _scattered(call: OperatorCall, x: Any, dim: int, index: Any, source: Any, how: str) -> Any:
    """``scatter_elements``; PyTorch lets the source be larger than the index."""
    if 0 in shape_of(index):
        return x
    if not isinstance(source, relax.Expr):
        source = call.filled(shape_of(index), source)
    return _scattered_as(call, x, dim, index, call.cast(source), how)


def _scattered_as(call: OperatorCall, x: Any, dim: int, index: Any, source: Any, how: str) -> Any:
    """In the operand's type, which may not be the result's."""
    for axis, size in enumerate(shape_of(index)):
        if shape_of(source)[axis] != size:
            source = sliced(call, source, axis, 0, size)
    axis = dim % max(len(shape_of(x)), 1)
    return call.emit(relax.op.scatter_elements(x, index, source, axis, how))


def _scatter_reduce_into(
    call: OperatorCall, x: Any, dim: int, index: Any, source: Any, reduce: str
) -> Any:
    return _scattered(call, x, dim, index, source, _REDUCTIONS[reduce])


def _scatter_reduce(
    call: OperatorCall,
    x: Any,
    dim: int,
    index: Any,
    source: Any,
    reduce: str,
    include_self: bool = True,
) -> Any:
    """Elements that do not count themselves, and that others are scattered to, start anew."""
    how = _REDUCTIONS["sum" if reduce == "mean" else reduce]
    if 0 in shape_of(index) or (include_self and reduce != "mean"):
        return _scattered(call, x, dim, index, source, how)
    one = relax.const(1, "int32")
    own = call.broadcast(relax.const(int(include_self), "int32"), call.shape)
    counts = _scattered_as(call, own, dim, index, call.broadcast(one, shape_of(index)), "add")
    if not include_self:
        reached = relax.op.greater(counts, relax.const(0, "int32"))
        x = call.emit(relax.op.where(reached, call.cast(_neutral(call, how)), x))
    result = _scattered(call, x, dim, index, source, how)
    if reduce != "mean":
        return result
    counts = call.cast(call.emit(relax.op.maximum(counts, one)))
    op = relax.op.divide if is_float(call.dtype) else relax.op.floor_divide
    return call.emit(op(result, counts))


def _index_reduce(
    call: OperatorCall,
    x: Any,
    dim: int,
    index: Any,
    source: Any,
    reduce: str,
    include_self: bool = True,
) -> Any:
    """Whole slices, each of which an index has a place for."""
    axis = dim % x.ty.ndim
    own = [shape_of(index)[0] if k == axis else 1 for k in range(x.ty.ndim)]
    index = call.broadcast(call.reshape(index, own), shape_of(source))
    return _scatter_reduce(call, x, axis, index, source, reduce, include_self)


def _put_flat(call: OperatorCall, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """``put``: places in the flat tensor."""
    flat = call.reshape(x, (math.prod(shape_of(x)),))
    places, values = (call.reshape(v, (math.prod(shape_of(v)),)) for v in (index, source))
    parts = joined(call, flat, [places])
    return call.reshape(_put_several(call, parts, call.cast(values), accumulate), shape_of(x))


def _neutral(call: OperatorCall, how: str) -> float:
    """What changes nothing that it is combined with."""
    if how in ("add", "mul"):
        return 0 if how == "add" else 1
    if is_float(call.dtype):
        return -math.inf if how == "max" else math.inf
    limits = np.iinfo(call.dtype)
    return int(limits.min if how == "max" else limits.max)


def _masked_scatter(call: OperatorCall, x: Any, mask: Any, source: Any) -> Any:
    """The first elements of the source go where the mask is true, one after the other."""
    if 0 in (*call.shape, *shape_of(source)):
        return x
    mask, x = call.broadcast(mask, call.shape), call.broadcast(x, call.shape)
    source = call.reshape(source, (math.prod(shape_of(source)),))
    return call.emit(relax.op.where(mask, _in_turn(call, mask, source), x))


def _slice_replaced(
    call: OperatorCall,
    x: Any,
    source: Any,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Any:
    """The parts before and behind the slice, and the source between; by a mask if it has steps."""
    axis = dim % len(call.shape)
    size = call.shape[axis]
    if not are_numbers(start, end, size):
        first = from_front(0 if start is None else start, size)
        return call.compute(_replaced_from, x, call.cast(source), axis, first, step)
    covered = range(*slice(start, end, step).indices(size))
    if not covered or 0 in call.shape:
        return x
    source = call.cast(source)
    if covered.step == 1:
        before = sliced(call, x, axis, 0, covered.start)
        behind = sliced(call, x, axis, covered.stop)
        parts = [part for part in (before, source, behind) if 0 not in shape_of(part)]
        return call.emit(relax.op.concat(parts, axis)) if len(parts) > 1 else parts[0]
    nearest = np.clip((np.arange(size) - covered.start) // covered.step, 0, len(covered) - 1)
    spread = call.take(source, table(nearest), axis)
    return call.emit(relax.op.where(_mask(call, axis, covered), spread, x))


def _replaced_from(x: te.Tensor, source: te.Tensor, axis: int, start: Any, step: int) -> te.Tensor:
    """A slice that begins where only the run tells, and is as long as the source."""
    count = source.shape[axis]

    def element(*places: tirx.Var) -> Any:
        distance = places[axis] - start
        inside = tirx.all(distance >= 0, distance < count * step, distance % step == 0)
        at = (distance // step if k == axis else place for k, place in enumerate(places))
        return tirx.if_then_else(inside, source(*at), x(*places))

    return te.compute(x.shape, element, "replaced_from")


def _row_replaced(call: OperatorCall, x: Any, source: Any, dim: int, index: int) -> Any:
    axis = dim % len(call.shape)
    row = call.emit(relax.op.expand_dims(source, axis))
    start = index % call.shape[axis]
    return _slice_replaced(call, x, row, axis, start, start + 1)


def _mask(call: OperatorCall, axis: int, covered: range) -> Any:
    """True where an axis is covered."""
    mask = np.zeros(call.shape[axis], bool)
    mask[covered.start : covered.stop : covered.step] = True
    return relax.const(mask.reshape([-1 if k == axis else 1 for k in range(len(call.shape))]))


CONVERTERS: dict[str, Converter] = {
    "index_put.default": _put,
    "_unsafe_index_put.default": _put,
    "scatter.src": partial(_scattered, how="update"),
    "scatter.value": partial(_scattered, how="update"),
    "scatter.reduce": _scatter_reduce_into,
    "scatter.value_reduce": _scatter_reduce_into,
    "scatter_add.default": partial(_scattered, how="add"),
    "scatter_reduce.two": _scatter_reduce,
    "masked_scatter.default": _masked_scatter,
    "index_reduce.default": _index_reduce,
    "put.default": _put_flat,
    "slice_scatter.default": _slice_replaced,
    "select_scatter.default": _row_replaced,
}
