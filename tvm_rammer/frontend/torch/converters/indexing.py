"""Elements by their positions: several indices go together, and negative ones count from behind."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, te

from tvm_rammer.frontend.sizes import as_size
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    are_numbers,
    dtype_of,
    shape_of,
    table,
)
from tvm_rammer.frontend.torch.size_symbols import Size


class Joined(NamedTuple):
    """A tensor whose indexed axes are one axis, and the positions along it."""

    tensor: Any
    axis: int
    positions: Any
    #: The order of axes that brought the indexed ones together; None where they were.
    order: list[int] | None


def joined(call: OperatorCall, x: Any, indices: Sequence[Any]) -> Joined:
    """Make one axis of the axes that have an index (the others' is None).

    As in NumPy, indexed axes that are not neighbours go to the front.
    """
    shape = shape_of(x)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if any(dtype_of(indices[axis]) in ("bool", "uint8") for axis in axes):
        call.refuse("a mask as an index selects as many as are true, which is known too late")
    first, order = axes[0], None
    if axes != list(range(first, first + len(axes))):
        order = axes + [axis for axis in range(len(shape)) if axis not in axes]
        x, first = call.permute(x, order), 0
    sizes = [shape[axis] for axis in axes]
    around = shape_of(x)
    merged = call.reshape(x, (*around[:first], math.prod(sizes), *around[first + len(sizes) :]))
    positions = None
    for axis, size in zip(axes, sizes, strict=True):
        index = _from_the_front(call, indices[axis], size)
        if positions is None:
            positions = index
        else:
            scaled = relax.op.multiply(positions, call.cast(size, "int64"))
            positions = call.emit(relax.op.add(scaled, index))
    return Joined(merged, first, positions, order)


def _from_the_front(call: OperatorCall, index: Any, size: Size) -> Any:
    index = call.cast(index, "int64")
    behind = relax.op.less(index, relax.const(0, "int64"))
    shifted = relax.op.add(index, call.cast(size, "int64"))
    return call.emit(relax.op.where(behind, shifted, index))


def taken(call: OperatorCall, x: Any, indices: Sequence[Any]) -> Any:
    """``x[indices]``."""
    if all(index is None for index in indices):
        return x
    parts = joined(call, x, indices)
    return call.take(parts.tensor, parts.positions, parts.axis)


def _selected(call: OperatorCall, x: Any, dim: int, index: Any) -> Any:
    shape = shape_of(x)
    axis = dim % len(shape)
    if isinstance(index, int) and isinstance(shape[axis], int):
        return call.take(x, table(index % shape[axis]), axis)
    size = shape[axis]
    call.require(size, index + 1)
    call.require(index + size, 0)
    return call.take(x, _from_the_front(call, call.cast(index, "int64"), size), axis)


def _index_selected(call: OperatorCall, x: Any, dim: int, index: Any) -> Any:
    if not shape_of(x):
        return x
    positions = call.reshape(index, (math.prod(shape_of(index)),))
    return call.emit(relax.op.take(x, positions, dim % len(shape_of(x))))


def _gathered(call: OperatorCall, x: Any, dim: int, index: Any, *_: Any) -> Any:
    if not shape_of(x):
        return x
    return call.emit(relax.op.gather_elements(x, index, dim % len(shape_of(x))))


def _embedded(call: OperatorCall, weight: Any, indices: Any, *_: Any) -> Any:
    return call.take(weight, indices, 0)


def _diagonal(call: OperatorCall, x: Any, offset: int = 0, first: int = 0, second: int = 1) -> Any:
    """The diagonal of two axes, as the last axis."""
    rank = len(shape_of(x))
    pair = [first % rank, second % rank]
    others = [axis for axis in range(rank) if axis not in pair]
    x = call.permute(x, others + pair)
    steps = np.arange(call.shape[-1])
    indices = [table(steps + max(-offset, 0)), table(steps + max(offset, 0))]
    return taken(call, x, [None] * len(others) + indices)


def _strided(
    call: OperatorCall, x: Any, size: list[int], stride: list[int], offset: Any = None
) -> Any:
    """Elements by their places in memory, whose order the operand's strides tell."""
    if _is_operand(call):
        return x
    if not are_numbers(*size, *stride, offset, *shape_of(x)):
        return _strided_by_formulas(call, x, size, stride, offset)
    elements = _elements(call, size, stride, offset)
    if not elements.size:
        return call.reshape(x, size)
    flat = call.reshape(x, (math.prod(shape_of(x)),))
    return call.take(flat, table(elements), 0)


def _strided_by_formulas(
    call: OperatorCall, x: Any, size: list[Size], stride: list[Size], offset: Any
) -> Any:
    """Elements at places that the run computes, such as overlapping windows of a signal."""
    operand = call.node.args[0].meta["val"]
    own = [*zip(operand.shape, operand.stride(), strict=True)]
    behind = itertools.accumulate((count for count, _ in reversed(own)), operator.mul, initial=1)
    in_rows = zip(reversed(own), behind, strict=False)
    if any(str(step) != str(row) for (count, step), row in in_rows if count != 1):
        call.refuse("its operand is a view of open sizes", "make it contiguous() before")
    start = call.sizes.size(operand.storage_offset())
    first = as_size(0 if offset is None else offset - start)
    flat = call.reshape(x, (math.prod(shape_of(x)),))
    return call.compute(_at_places, flat, [*map(as_size, size)], [*map(as_size, stride)], first)


def _at_places(flat: te.Tensor, size: list[Any], stride: list[Any], first: Any) -> te.Tensor:
    def element(*at: Any) -> Any:
        steps = (place * step for place, step in zip(at, stride, strict=True))
        return flat[sum(steps, first)]

    return te.compute(size, element, "strided")


def _is_operand(call: OperatorCall) -> bool:
    """Whether the same elements are at the same places; an axis of one element has any stride."""
    operand, result = call.node.args[0].meta["val"], call.node.meta["val"]
    views = ([*zip(each.shape, each.stride(), strict=True)] for each in (operand, result))
    own, other = ([str(pair) if pair[0] != 1 else "" for pair in view] for view in views)
    return own == other and str(operand.storage_offset()) == str(result.storage_offset())


def _strided_replaced(
    call: OperatorCall,
    x: Any,
    source: Any,
    size: list[int],
    stride: list[int],
    offset: Any = None,
) -> Any:
    """``as_strided_scatter``, of which ``fill_diagonal_`` is made."""
    return _replaced(call, x, source, _elements(call, size, stride, offset))


def _diagonal_replaced(
    call: OperatorCall, x: Any, source: Any, offset: int = 0, first: int = 0, second: int = 1
) -> Any:
    places = np.arange(math.prod(shape_of(x))).reshape(shape_of(x))
    return _replaced(call, x, source, np.diagonal(places, offset, first, second))


def _replaced(call: OperatorCall, x: Any, source: Any, elements: Any) -> Any:
    """A tensor with the elements of another one at positions of the flat one that are known."""
    if not elements.size:
        return x
    shape = shape_of(x)
    flat_origins = np.full(math.prod(shape), -1)
    flat_origins[elements.reshape(-1)] = np.arange(elements.size)
    origins = flat_origins.reshape(shape)
    flat = call.reshape(call.cast(source), (elements.size,))
    values = call.take(flat, table(np.maximum(origins, 0)), 0)
    return call.emit(relax.op.where(relax.const(origins >= 0), values, x))


def _elements(call: OperatorCall, size: list[int], stride: list[int], offset: Any) -> Any:
    """Which elements of the flat operand lie at some places in memory."""
    operand = call.node.args[0].meta["val"]
    own = _places(tuple(operand.shape), operand.stride()).reshape(-1)
    start = int(operand.storage_offset())
    wanted = _places(size, stride) + (0 if offset is None else offset - start)
    if not np.isin(wanted, own).all():
        call.refuse("it reads memory outside of its operand; call it on the whole tensor")
    order = np.argsort(own, kind="stable")
    return order[np.searchsorted(own, wanted, sorter=order)]


def _places(size: Sequence[int], stride: Sequence[int]) -> Any:
    """Where the elements of a tensor lie, from its first one on."""
    places = np.zeros((), np.int64)
    for count, step in zip(size, stride, strict=True):
        places = np.expand_dims(places, -1) + np.arange(count) * step
    return places


def _triangle(lower: bool) -> Converter:
    """``tril`` and ``triu``, by a mask."""

    def convert(call: OperatorCall, x: Any, diagonal: int = 0) -> Any:
        mask = _triangular(call, lower, diagonal)
        if call.dtype == "bool":
            return call.emit(relax.op.logical_and(x, mask))
        return call.emit(relax.op.where(mask, x, call.cast(0)))

    return convert


def _triangular(call: OperatorCall, lower: bool, diagonal: int) -> Any:
    """What of a matrix of the result's size is kept."""
    height, width = call.shape[-2:]
    if isinstance(height, int) and isinstance(width, int):
        return relax.const(
            (np.tril if lower else np.triu)(np.ones((height, width), bool), diagonal)
        )
    rows = call.reshape(call.counted(height, diagonal), (height, 1))
    compare = relax.op.less_equal if lower else relax.op.greater_equal
    return call.emit(compare(call.counted(width), rows))


CONVERTERS: dict[str, Converter] = {
    "select.int": _selected,
    "index_select.default": _index_selected,
    "index.Tensor": taken,
    "_unsafe_index.Tensor": taken,
    "gather.default": _gathered,
    "embedding.default": _embedded,
    "diagonal.default": _diagonal,
    "as_strided.default": _strided,
    "as_strided_scatter.default": _strided_replaced,
    "diagonal_scatter.default": _diagonal_replaced,
    "tril.default": _triangle(lower=True),
    "triu.default": _triangle(lower=False),
}
