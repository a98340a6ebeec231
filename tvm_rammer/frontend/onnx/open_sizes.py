"""Converters of operators whose operands are sizes that each run decides, as formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_rammer.frontend.onnx.open_windows import (
    WINDOW_CONVERTERS,
    OpenConverter,
    open_shape_of,
)
from tvm_rammer.frontend.onnx.run_time_sizes import is_shape
from tvm_rammer.frontend.onnx.size_values import SizeValues, UnknownError, is_number
from tvm_rammer.frontend.part_of_axis import part_of_axes
from tvm_rammer.frontend.sizes import FAR, as_size, distance, end_unless_zero, quotient


def _reshape(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """To sizes of which one may follow from the others; the run ends where they do not fit."""
    data, target = inputs
    elements = values.elements(target)
    own = open_shape_of(data, elements)
    if elements is None or own is None:
        return None
    wanted = elements.tolist()
    if not attributes.get("allowzero", 0):
        wanted = [own[axis] if is_number(size, 0) else size for axis, size in enumerate(wanted)]
    rest = [axis for axis, size in enumerate(wanted) if is_number(size, -1)]
    others = [size for size in wanted if not is_number(size, -1)]
    above, below = _without_common(values, own, others)
    if rest:
        wanted[rest[0]] = values.simplified(quotient(prod(above), prod(below)))
    whole, made = prod(own), prod(wanted)
    if not values.are_equal(as_size(whole), as_size(made)):
        end_unless_zero(bb, values.simplified(distance(whole, made)))
    return relax.op.reshape(data, relax.ShapeExpr(list(map(as_size, wanted))))


def _without_common(
    values: SizeValues, sizes: Sequence[Any], others: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Factors of two products, without those that both have."""
    left, right = list(sizes), []
    for size in others:
        same = (place for place, own in enumerate(left) if values.are_equal(own, size))
        if (place := next(same, None)) is None:
            right.append(size)
        else:
            del left[place]
    return left, right


def _slice(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """From and to places that are formulas, of axes that may be shorter."""
    data, *given = inputs
    elements = [None if each is None else values.elements(each) for each in given]
    if is_shape(data) or any(
        found is None for found, each in zip(elements, given, strict=True) if each is not None
    ):
        return None
    own = open_shape_of(data, *elements)
    if own is None:
        return None
    starts, ends, axes, steps = (
        [] if each is None else each.tolist() for each in (*elements, None, None)[:4]
    )
    axes = [int(axis) % len(own) for axis in axes or range(len(starts))]
    steps = list(map(int, steps)) or [1] * len(starts)
    if any(step < 1 for step in steps):
        return None
    try:
        firsts = [_place(values, at, own[axis]) for at, axis in zip(starts, axes, strict=True)]
        lasts = [_place(values, at, own[axis]) for at, axis in zip(ends, axes, strict=True)]
    except UnknownError:
        # From the end or not, which only the run tells.
        return None
    counts = [_count(values, *ends) for ends in zip(firsts, lasts, steps, strict=True)]
    begins, counts = (list(map(as_size, each)) for each in (firsts, counts))
    return bb.emit_te(part_of_axes, data, axes, begins, counts, steps)


def _count(values: SizeValues, first: Any, last: Any, step: int) -> Any:
    """How many places there are from one to before another, every ``step``-th of them."""
    span = tirx.max(as_size(last) - as_size(first), as_size(0))
    return values.simplified(quotient(span + (step - 1), step))


def _place(values: SizeValues, place: Any, size: Any) -> Any:
    """A place of an axis as ONNX counts it: from its end if it is negative, never outside."""
    if isinstance(place, int):
        # Models have the largest integer for the end of an axis.
        place = max(-FAR, min(place, FAR))
    from_end = values.decided(as_size(place) < 0)
    moved = values.simplified(as_size(place) + as_size(size)) if from_end else place
    if isinstance(moved, int) and isinstance(size, int):
        return max(0, min(moved, size))
    inside = tirx.min(as_size(moved), as_size(size))
    return values.simplified(tirx.max(inside, as_size(0)))


def _range(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """Numbers from one size to another."""
    given = [values.elements(each) for each in inputs]
    if any(each is None for each in given) or str(_dtype(inputs)) != "int64":
        return None
    start, limit, step = (each.item() for each in given if each is not None)
    are_known = isinstance(start, int) and isinstance(limit, int)
    if are_known or not isinstance(step, int) or step < 1:
        return None
    count = _count(values, start, limit, step)

    def numbers(first: Any, size: Any) -> te.Tensor:
        return te.compute((size,), lambda place: first + place * step, "range")

    return bb.emit_te(numbers, as_size(start), as_size(count))


def _tile(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """Repeated as often as sizes say."""
    data, repeats = inputs
    elements = values.elements(repeats)
    own = open_shape_of(data, elements)
    if elements is None or own is None:
        return None
    shape = [
        values.simplified(as_size(size) * times)
        for size, times in zip(own, elements.tolist(), strict=True)
    ]

    def repeat(tensor: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        def element(*places: tirx.Var) -> Any:
            pairs = zip(places, tensor.shape, strict=True)
            return tensor(*(tirx.floormod(place, size) for place, size in pairs))

        return te.compute(sizes, element, "tile")

    return bb.emit_te(repeat, data, list(map(as_size, shape)))


def _clip(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """By operators, which work in any layout; a limit that is no number is none."""
    data, least, most = [*inputs, None, None][:3]
    if open_shape_of(data) is None:
        return None
    dtype = str(data.ty.dtype)
    kinds = (relax.op.maximum, least, "min", -np.inf), (relax.op.minimum, most, "max", np.inf)
    for bounded, limit, name, none in kinds:
        if limit is None and name in attributes:
            limit = relax.const(attributes[name], dtype)
        if limit is None:
            continue
        if isinstance(limit, tvm.ir.GenericConst) and np.isnan(limit.value.numpy()):
            continue
        if not isinstance(limit, tvm.ir.GenericConst) and "float" in dtype:
            is_none = relax.op.isnan(limit)
            limit = bb.emit(relax.op.where(is_none, relax.const(none, dtype), limit))
        data = bb.emit(bounded(data, limit))
    return data


def _dtype(inputs: Sequence[Any]) -> str:
    """The type of operands that are tensors; sizes are of int64."""
    found = [str(each.ty.dtype) for each in inputs if isinstance(each, tvm.ir.GenericConst)]
    return found[0] if found else "int64"


OPEN_CONVERTERS: Mapping[str, OpenConverter] = {
    **WINDOW_CONVERTERS,
    "Clip": _clip,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Tile": _tile,
}
