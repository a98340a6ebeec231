"""Converters of operators whose operands are sizes that each run decides, as formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_rammer.frontend.onnx.run_time_sizes import is_shape
from tvm_rammer.frontend.onnx.size_values import SizeValues, UnknownError, is_number
from tvm_rammer.frontend.part_of_axis import part_of_axes
from tvm_rammer.frontend.sizes import FAR, as_size, end_unless_zero, quotient
from tvm_rammer.relax_util import open_shape

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
        wanted = [own[axis] if is_number(size, 0) else size for axis, size in enumerate(wanted)]
    rest = [axis for axis, size in enumerate(wanted) if is_number(size, -1)]
    others = [size for size in wanted if not is_number(size, -1)]
    above, below = _without_common(values, own, others)
    if rest:
        wanted[rest[0]] = values.simplified(quotient(prod(above), prod(below)))
    whole, made = prod(own), prod(wanted)
    if not values.are_equal(as_size(whole), as_size(made)):
        left = as_size(whole) - as_size(made)
        end_unless_zero(bb, values.simplified(left * left))
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
    own = _open_shape(data, elements)
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
    if _open_shape(data) is None:
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


def _pad(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """With a number, by as many places as sizes say."""
    data, pads, value, axes = [*inputs, None, None, None][:4]
    own, given = _open_shape(data), values.elements(pads) if len(inputs) > 1 else None
    if own is None or given is None or attributes.get("mode", b"constant") != b"constant":
        return None
    numbers = None if axes is None else values.elements(axes)
    known = numbers is not None or axes is None
    if not known or not (value is None or isinstance(value, tvm.ir.GenericConst)):
        return None
    places = range(len(own)) if numbers is None else [axis % len(own) for axis in numbers.tolist()]
    widths = dict(zip(places, zip(*given.reshape(2, -1).tolist(), strict=True), strict=True))
    both = [widths.get(axis, (0, 0)) for axis in range(len(own))]
    number = 0.0 if value is None else value.value.numpy().item()
    flat = [width for each in both for width in each]
    if all(isinstance(width, int) and width >= 0 for width in flat) and isinstance(number, float):
        return relax.op.nn.pad(data, flat, "constant", number)
    before, after = (list(map(as_size, each)) for each in zip(*both, strict=True))
    padded = bb.emit_te(_padded, data, before, after, number)
    sizes = list(padded.ty.shape.values)
    for axis, pair in enumerate(both):
        if not all(isinstance(width, int) for width in pair):
            # What follows is computed of a name: of a formula it would be a longer one each time.
            sizes[axis] = tirx.Var(f"padded_{axis}", "int64")
            values.is_open(sizes[axis])
    return bb.match_cast(padded, relax.TensorType(sizes, padded.ty.dtype))


def _padded(data: te.Tensor, before: Sequence[Any], after: Sequence[Any], number: Any) -> te.Tensor:
    sizes = [sum(each) for each in zip(before, data.shape, after, strict=True)]

    def element(*places: tirx.Var) -> Any:
        own = [place - first for place, first in zip(places, before, strict=True)]
        inside = (
            tirx.all(place >= 0, place < size) for place, size in zip(own, data.shape, strict=True)
        )
        other = tirx.const(number, str(data.dtype))
        return tirx.if_then_else(tirx.all(*inside), data(*own), other)

    return te.compute(sizes, element, "padded")


def _pooled(name: str) -> OpenConverter:
    """Windows that begin before the end and may reach beyond: with more padding there.

    How many there are is a formula with a condition else, and whatever follows has it too.
    """

    def convert(
        bb: relax.BlockBuilder,
        values: SizeValues,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
    ) -> relax.Expr | None:
        (data,) = inputs
        sizes, kernel = _open_shape(data), attributes["kernel_shape"]
        automatic = attributes.get("auto_pad", b"NOTSET") != b"NOTSET"
        beyond = attributes.get("count_include_pad", 0)
        if sizes is None or automatic or beyond or not attributes.get("ceil_mode", 0):
            return None
        rank = len(kernel)
        strides = attributes.get("strides", [1] * rank)
        dilations = attributes.get("dilations", [1] * rank)
        pads = list(attributes.get("pads", [0] * 2 * rank))
        windows = zip(kernel, strides, dilations, strict=True)
        for axis, (taps, stride, dilation) in enumerate(windows):
            if pads[rank + axis] + stride > (taps - 1) * dilation + 1:
                # The last one may begin behind the end.
                return None
            pads[rank + axis] += stride - 1
        pool = getattr(relax.op.nn, f"{name}_pool{rank}d")
        return pool(data, kernel, strides, pads, dilations)

    return convert


def _open_shape(data: Any, *others: Any) -> list[Any] | None:
    """The sizes of a tensor, if one of them, or of other elements, is a formula."""
    sizes = open_shape(data) if isinstance(data, relax.Expr) else None
    if sizes is None:
        return None
    known = [each for other in others if other is not None for each in other.ravel().tolist()]
    return None if all(isinstance(each, int) for each in (*sizes, *known)) else list(sizes)


def _dtype(inputs: Sequence[Any]) -> str:
    """The type of operands that are tensors; sizes are of int64."""
    found = [str(each.ty.dtype) for each in inputs if isinstance(each, tvm.ir.GenericConst)]
    return found[0] if found else "int64"


OPEN_CONVERTERS: Mapping[str, OpenConverter] = {
    "AveragePool": _pooled("avg"),
    "Clip": _clip,
    "MaxPool": _pooled("max"),
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Tile": _tile,
}
