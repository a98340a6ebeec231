"""As many results as the data say: positions of what is true, numbers, what differs, boxes left."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from tvm_rammer.frontend.suppression import non_max_suppression
from tvm_rammer.frontend.torch.converters.layout import sliced
from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, shape_of, table


def _positions(call: OperatorCall, x: Any) -> Any:
    """``nonzero``: a row for each."""
    count, rank = call.shape
    if rank == 0:
        call.refuse("a number has no positions", "compare it instead")
    return call.permute(call.sized(call.emit(relax.op.nonzero(x)), (rank, count)), [1, 0])


def _number(call: OperatorCall, x: Any) -> Any:
    """``item()``: an integer becomes a size, or part of one."""
    number = call.node.meta["val"]
    if not _is_integer(number):
        call.refuse(
            "only integers can be taken out of tensors", "leave it a tensor, without .item()"
        )
    size = call.sizes.size(number)
    call.name_size(x, size)
    return size


def _is_integer(number: Any) -> bool:
    import torch

    return isinstance(number, torch.SymInt)


def _different(
    call: OperatorCall, x: Any, in_order: bool = True, inverse: bool = False, counts: bool = False
) -> Any:
    """``unique``, of all elements."""
    values, places, numbers = _unique(call, x, None, inverse, counts)
    return [values, call.reshape(places, shape_of(x)) if inverse else None, numbers]


def _different_slices(
    call: OperatorCall,
    x: Any,
    dim: int,
    in_order: bool = True,
    inverse: bool = False,
    counts: bool = False,
) -> Any:
    return _unique(call, x, dim % x.ty.ndim, inverse, counts)


def _unique(call: OperatorCall, x: Any, axis: int | None, inverse: bool, counts: bool) -> list[Any]:
    """What differs, in order; of each slice which one it is; how many there are of each."""
    found = call.emit(relax.op.unique(x, True, False, inverse, counts, axis))
    if not (inverse or counts):
        return [call.sized(found), None, None]
    fields = iter([call.emit(relax.TupleGetItem(found, k)) for k in range(1 + inverse + counts)])
    values = call.sized(next(fields))
    places = next(fields) if inverse else None
    number = shape_of(values)[axis or 0]
    return [values, places, call.sized(next(fields), [number]) if counts else None]


def _different_from_the_last(
    call: OperatorCall, x: Any, inverse: bool = False, counts: bool = False, dim: Any = None
) -> Any:
    """``unique_consecutive``: what differs from the element before it."""
    if dim is not None and x.ty.ndim > 1:
        call.refuse("slices along an axis are not supported", "flatten it, or use torch.unique")
    size = math.prod(shape_of(x))
    flat = call.reshape(x, (size,))
    last = call.take(flat, call.emit(relax.op.maximum(call.counted(size, -1), table(0))), 0)
    differs = call.emit(relax.op.not_equal(flat, last))
    is_first = call.emit(relax.op.equal(call.counted(size), table(0)))
    begins = call.emit(relax.op.logical_or(differs, is_first))
    (count,) = call.shape
    places = call.sized(call.emit(relax.op.nonzero(begins)), (1, count))
    places = call.reshape(places, (count,))
    number = relax.op.cumsum(call.cast(begins, "int64"), axis=0, dtype="int64")
    which = call.emit(relax.op.subtract(number, table(1)))
    lengths = None
    if counts:
        empty = call.emit(relax.op.zeros((count,), "int64"))
        ones = call.emit(relax.op.ones((size,), "int64"))
        lengths = call.emit(relax.op.scatter_elements(empty, which, ones, 0, "add"))
    whole = call.reshape(which, shape_of(x)) if inverse else None
    return [call.take(flat, places, 0), whole, lengths]


def _in_bins(call: OperatorCall, x: Any, weights: Any = None, least: int = 0) -> Any:
    """``bincount``: as many bins as the largest number says."""
    (bins,) = call.shape
    x = call.cast(x, "int64")
    if not isinstance(bins, int):
        top = relax.op.add(relax.op.max(x), relax.const(1, "int64"))
        call.name_size(relax.op.maximum(top, relax.const(least, "int64")), bins)
    added = call.cast(1) if weights is None else call.cast(weights)
    added = call.broadcast(added, shape_of(x))
    empty = call.filled((bins,), 0)
    return call.emit(relax.op.scatter_elements(empty, x, added, 0, "add"))


def _boxes_left(call: OperatorCall, boxes: Any, scores: Any, overlap: float) -> Any:
    """``torchvision.ops.nms``: their numbers, the best first."""
    (count,) = shape_of(scores)
    boxes = call.reshape(call.cast(boxes, "float32"), (1, count, 4))
    scores = call.reshape(call.cast(scores, "float32"), (1, 1, count))
    rows = non_max_suppression(call.builder, boxes, scores, overlap)
    numbers = call.emit(relax.op.squeeze(sliced(call, rows, 1, 2, 3), [1]))
    return call.sized(numbers)


CONVERTERS: dict[str, Converter] = {
    "nonzero.default": _positions,
    "_local_scalar_dense.default": _number,
    "_unique2.default": _different,
    "unique_dim.default": _different_slices,
    "unique_consecutive.default": _different_from_the_last,
    "bincount.default": _in_bins,
    "nms.default": _boxes_left,
}
