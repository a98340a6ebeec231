"""Bags of embeddings: rows of a table, summed, averaged or compared bag by bag."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, shape_of, table

_SUM, _MEAN, _MAX = range(3)


def _embedding_bag(
    call: OperatorCall,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Any]:
    """``nn.EmbeddingBag``; the rows of index ``padding_idx`` are in no bag."""
    bags, width = call.shape
    count = shape_of(indices)[0]
    if not bags or not count:
        return call.only(call.filled((bags, width), 0))
    rows = call.take(weight, indices, 0)
    if per_sample_weights is not None:
        scale = call.reshape(call.cast(per_sample_weights), (count, 1))
        rows = call.emit(relax.op.multiply(rows, scale))
    present = None
    if padding_idx >= 0:
        padding = relax.const(padding_idx, "int64")
        differs = relax.op.not_equal(call.cast(indices, "int64"), padding)
        present = call.reshape(call.emit(differs), (count, 1))
        rows = call.emit(relax.op.where(present, rows, call.cast(_neutral(mode))))
    size = _bag_size(call, count, bags)
    if size:
        result = _of_equal_bags(call, mode, rows, present, (bags, size))
    else:
        result = _of_any_bags(call, mode, rows, present, offsets)
    return call.only(result)


def _neutral(mode: int) -> float:
    return -np.inf if mode == _MAX else 0.0


def _bag_size(call: OperatorCall, count: int, bags: int) -> int | None:
    """Indices per bag where it is the same for all: from an input with two dimensions."""
    offsets = call.node.args[2]
    if getattr(offsets.target, "__name__", "") != "arange.start_step":
        return None
    start, end, *step = offsets.args
    size = step[0] if step else 1
    return size if (start, end, size * bags) == (0, count, count) else None


def _of_equal_bags(
    call: OperatorCall, mode: int, rows: Any, present: Any, shape: tuple[int, int]
) -> Any:
    def total(op: Any, x: Any) -> Any:
        return call.emit(op(call.reshape(x, (*shape, shape_of(x)[1])), axis=1))

    if mode == _MAX:
        return _finite(call, total(relax.op.max, rows), present)
    result = total(relax.op.sum, rows)
    if mode == _SUM:
        return result
    counts = call.cast(shape[1]) if present is None else total(relax.op.sum, call.cast(present))
    return _mean(call, result, counts)


def _of_any_bags(call: OperatorCall, mode: int, rows: Any, present: Any, offsets: Any) -> Any:
    """By scattering: an index is in the last bag that starts at it or before."""
    count, bags = shape_of(rows)[0], call.shape[0]
    starts = call.reshape(call.cast(offsets, "int64"), (1, *shape_of(offsets)))
    begun = relax.op.greater_equal(table(np.arange(count)[:, None]), starts)
    number = relax.op.sum(relax.op.astype(call.emit(begun), "int64"), axis=1, keepdims=True)
    bag = call.emit(relax.op.subtract(number, relax.const(1, "int64")))

    def total(x: Any, how: str, start: float) -> Any:
        nothing = call.filled((bags, shape_of(x)[1]), start)
        return call.emit(
            relax.op.scatter_elements(nothing, call.broadcast(bag, shape_of(x)), x, 0, how)
        )

    if mode == _MAX:
        return _finite(call, total(rows, "max", -np.inf), rows)
    result = total(rows, "add", 0)
    if mode == _SUM:
        return result
    counted = call.filled((count, 1), 1) if present is None else call.cast(present)
    return _mean(call, result, total(counted, "add", 0))


def _mean(call: OperatorCall, total: Any, counts: Any) -> Any:
    """Zero for an empty bag."""
    return call.emit(relax.op.divide(total, relax.op.maximum(counts, call.cast(1))))


def _finite(call: OperatorCall, maximum: Any, can_be_empty: Any) -> Any:
    """The maximum of an empty bag is zero."""
    if can_be_empty is None:
        return maximum
    empty = relax.op.equal(maximum, call.cast(-np.inf))
    return call.emit(relax.op.where(empty, call.cast(0), maximum))


CONVERTERS: dict[str, Converter] = {
    "_embedding_bag.default": _embedding_bag,
    "_embedding_bag_forward_only.default": _embedding_bag,
}
