"""Converters of operators whose operands are sizes that each run decides, as formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx

from tvm_rammer.frontend.onnx.run_time_sizes import is_shape
from tvm_rammer.frontend.onnx.size_values import FAR, SizeValues, UnknownError
from tvm_rammer.frontend.run_time_checks import end_unless_zero

#: Makes an expression of a node's operands, what is known of sizes, and its attributes; ``None`` is
#: for who knows no open sizes.
OpenConverter = Callable[
    [relax.BlockBuilder, SizeValues, Sequence[Any], Mapping[str, Any]], relax.Expr | None
]


def _reshape(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """To sizes of which one may follow from the others; the run ends where they do not fit."""
    data, target = inputs
    elements = values.elements(target)
    own = _open_shape(data, elements)
    if elements is None or own is None:
        return None
    wanted = elements.tolist()
    if not attributes.get("allowzero", 0):
        wanted = [own[axis] if _is(size, 0) else size for axis, size in enumerate(wanted)]
    rest = [axis for axis, size in enumerate(wanted) if _is(size, -1)]
    others = [size for size in wanted if not _is(size, -1)]
    above, below = _without_common(values, own, others)
    if rest:
        wanted[rest[0]] = values.simplified(_quotient(prod(above), prod(below)))
    whole, made = prod(own), prod(wanted)
    if not values.are_equal(_formula(whole), _formula(made)):
        left = _formula(whole) - _formula(made)
        end_unless_zero(bb, values.simplified(left * left))
    return relax.op.reshape(data, relax.ShapeExpr(list(map(_formula, wanted))))


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
    own = _open_shape(data, *elements)
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
    shape = list(own)
    for axis, first, last, step in zip(axes, firsts, lasts, steps, strict=True):
        span = tirx.max(_formula(last) - _formula(first), _formula(0))
        shape[axis] = values.simplified(_quotient(span + (step - 1), step))

    def take(tensor: te.Tensor, firsts: Sequence[Any], sizes: Sequence[Any]) -> te.Tensor:
        def element(*places: tirx.Var) -> Any:
            moved = list(places)
            for axis, first, step in zip(axes, firsts, steps, strict=True):
                moved[axis] = first + places[axis] * step
            return tensor(*moved)

        return te.compute(sizes, element, "slice")

    return bb.emit_te(take, data, list(map(_formula, firsts)), list(map(_formula, shape)))


def _place(values: SizeValues, place: Any, size: Any) -> Any:
    """A place of an axis as ONNX counts it: from its end if it is negative, never outside."""
    if isinstance(place, int):
        # Models have the largest integer for the end of an axis.
        place = max(-FAR, min(place, FAR))
    from_end = values.decided(_formula(place) < 0)
    moved = values.simplified(_formula(place) + _formula(size)) if from_end else place
    if isinstance(moved, int) and isinstance(size, int):
        return max(0, min(moved, size))
    inside = tirx.min(_formula(moved), _formula(size))
    return values.simplified(tirx.max(inside, _formula(0)))


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
    span = tirx.max(_formula(limit) - _formula(start), _formula(0))
    count = values.simplified(_quotient(span + (step - 1), step))

    def numbers(first: Any, size: Any) -> te.Tensor:
        return te.compute((size,), lambda place: first + place * step, "range")

    return bb.emit_te(numbers, _formula(start), _formula(count))


def _tile(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """Repeated as often as sizes say."""
    data, repeats = inputs
    elements = values.elements(repeats)
    own = _open_shape(data, elements)
    if elements is None or own is None:
        return None
    shape = [
        values.simplified(_formula(size) * times)
        for size, times in zip(own, elements.tolist(), strict=True)
    ]

    def repeat(tensor: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        def element(*places: tirx.Var) -> Any:
            pairs = zip(places, tensor.shape, strict=True)
            return tensor(*(tirx.floormod(place, size) for place, size in pairs))

        return te.compute(sizes, element, "tile")

    return bb.emit_te(repeat, data, list(map(_formula, shape)))


def _open_shape(data: Any, *others: Any) -> list[Any] | None:
    """The sizes of a tensor, if one of them, or of other elements, is a formula."""
    if not isinstance(data, relax.Expr) or not isinstance(data.ty, relax.TensorType):
        return None
    if not isinstance(data.ty.shape, relax.ShapeExpr):
        return None
    sizes = [int(s) if isinstance(s, tirx.IntImm) else s for s in data.ty.shape.values]
    known = [each for other in others if other is not None for each in other.ravel().tolist()]
    return None if all(isinstance(each, int) for each in (*sizes, *known)) else sizes


def _dtype(inputs: Sequence[Any]) -> str:
    """The type of operands that are tensors; sizes are of int64."""
    found = [str(each.ty.dtype) for each in inputs if isinstance(each, tvm.ir.GenericConst)]
    return found[0] if found else "int64"


def _is(size: Any, number: int) -> bool:
    return isinstance(size, int) and size == number


def _formula(size: Any) -> Any:
    return tirx.IntImm("int64", size) if isinstance(size, int) else size


def _quotient(size: Any, divisor: Any) -> Any:
    return tirx.floordiv(_formula(size), _formula(divisor))


OPEN_CONVERTERS: Mapping[str, OpenConverter] = {
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Tile": _tile,
}
