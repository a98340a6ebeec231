"""Converters of padding and of windows over axes whose sizes each run decides, as formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_rammer.frontend.onnx.size_values import SizeValues
from tvm_rammer.frontend.part_of_axis import surrounded
from tvm_rammer.frontend.sizes import as_size, quotient
from tvm_rammer.relax_util import open_shape

#: Makes an expression of a node's operands, what is known of sizes, and its attributes; ``None`` is
#: for who knows no open sizes.
OpenConverter = Callable[
    [relax.BlockBuilder, SizeValues, Sequence[Any], Mapping[str, Any]], relax.Expr | None
]


def open_shape_of(data: Any, *others: Any) -> list[Any] | None:
    """The sizes of a tensor, if one of them, or of other elements, is a formula."""
    sizes = open_shape(data) if isinstance(data, relax.Expr) else None
    if sizes is None:
        return None
    known = [each for other in others if other is not None for each in other.ravel().tolist()]
    return None if all(isinstance(each, int) for each in (*sizes, *known)) else list(sizes)


def _pad(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """With a number, by as many places as sizes say."""
    data, pads, value, axes = [*inputs, None, None, None][:4]
    own, given = open_shape_of(data), values.elements(pads) if len(inputs) > 1 else None
    if own is None or given is None or attributes.get("mode", b"constant") != b"constant":
        return None
    numbers = None if axes is None else values.elements(axes)
    known = numbers is not None or axes is None
    if not known or not (value is None or isinstance(value, tvm.ir.GenericConst)):
        return None
    places = range(len(own)) if numbers is None else [axis % len(own) for axis in numbers.tolist()]
    widths = dict(zip(places, zip(*given.reshape(2, -1).tolist(), strict=True), strict=True))
    both = [widths.get(axis, (0, 0)) for axis in range(len(own))]
    return _surrounded(bb, values, data, both, 0.0 if value is None else value.value.numpy().item())


def _surrounded(
    bb: relax.BlockBuilder,
    values: SizeValues,
    data: Any,
    both: Sequence[tuple[Any, Any]],
    number: Any,
) -> relax.Expr:
    """A tensor with so many numbers before and behind it along each axis."""
    flat = [width for each in both for width in each]
    if all(isinstance(width, int) and width >= 0 for width in flat) and isinstance(number, float):
        return relax.op.nn.pad(data, flat, "constant", number)
    before, after = (list(map(as_size, each)) for each in zip(*both, strict=True))
    padded = bb.emit_te(surrounded, data, before, after, number)
    sizes = list(padded.ty.shape.values)
    for axis, pair in enumerate(both):
        if not all(isinstance(width, int) for width in pair):
            # What follows is computed of a name: of a formula it would be a longer one each time.
            sizes[axis] = tirx.Var(f"padded_{axis}", "int64")
            values.is_open(sizes[axis])
    return bb.match_cast(padded, relax.TensorType(sizes, padded.ty.dtype))


def _are_known(sizes: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in sizes)


#: Paddings that follow from sizes, and whether the odd place of one is before the data.
_SAME = {b"SAME_UPPER": False, b"SAME_LOWER": True}


def _steps(attributes: Mapping[str, Any], rank: int) -> tuple[Sequence[int], Sequence[int]]:
    """Strides and dilations."""
    ones = [1] * rank
    return attributes.get("strides", ones), attributes.get("dilations", ones)


def _same_pads(
    values: SizeValues, sizes: Sequence[Any], attributes: Mapping[str, Any], kernel: Sequence[int]
) -> list[tuple[Any, Any]] | None:
    """Before and behind each axis, so that as many windows as strides fit; ``None`` if given."""
    lower = _SAME.get(attributes.get("auto_pad", b"NOTSET"))
    if lower is None:
        return None
    pads = []
    steps = _steps(attributes, len(kernel))
    for size, taps, stride, dilation in zip(sizes, kernel, *steps, strict=True):
        count = quotient(as_size(size) + (stride - 1), stride)
        reach = (count - 1) * stride + (taps - 1) * dilation + 1
        total = tirx.max(reach - as_size(size), as_size(0))
        half = values.simplified(quotient(total, 2))
        rest = values.simplified(total - as_size(half))
        pads.append((rest, half) if lower else (half, rest))
    return pads


def _padded_for(
    bb: relax.BlockBuilder,
    values: SizeValues,
    data: Any,
    pads: Sequence[tuple[Any, Any]],
    number: float,
) -> tuple[Any, list[int]]:
    """Data, surrounded by a number where paddings are formulas, and the paddings that are left."""
    if all(map(_are_known, pads)):
        return data, [width for side in zip(*pads, strict=True) for width in side]
    around = [(0, 0)] * (data.ty.ndim - len(pads)) + list(pads)
    return _surrounded(bb, values, data, around, number), [0] * 2 * len(pads)


def _convolved(
    bb: relax.BlockBuilder, values: SizeValues, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """A convolution whose padding follows from sizes that are open."""
    data, weight, bias = [*inputs, None][:3]
    sizes, shape = open_shape_of(data), open_shape(weight)
    if sizes is None or shape is None or _are_known(sizes[2:]):
        return None
    rank = len(shape) - 2
    pads = _same_pads(values, sizes[2:], attributes, shape[2:])
    if pads is None or rank not in _CONVOLUTIONS:
        return None
    data, left = _padded_for(bb, values, data, pads, 0.0)
    strides, dilations = _steps(attributes, rank)
    groups = attributes.get("group", 1)
    found = _CONVOLUTIONS[rank](data, weight, strides, left, dilations, groups)
    if bias is None:
        return found
    return relax.op.add(bb.emit(found), relax.op.reshape(bias, [1, shape[0], *[1] * rank]))


_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}


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
        sizes, kernel = open_shape_of(data), attributes["kernel_shape"]
        if sizes is None:
            return None
        rank = len(kernel)
        strides, dilations = _steps(attributes, rank)
        pool = getattr(relax.op.nn, f"{name}_pool{rank}d")
        same = _same_pads(values, sizes[2:], attributes, kernel)
        is_float = "float" in str(data.ty.dtype)
        if name == "max" and same is not None and is_float:
            data, pads = _padded_for(bb, values, data, same, -np.inf)
            return pool(data, kernel, strides, pads, dilations)
        automatic = attributes.get("auto_pad", b"NOTSET") != b"NOTSET"
        beyond = attributes.get("count_include_pad", 0)
        if automatic or beyond or not attributes.get("ceil_mode", 0):
            return None
        pads = list(attributes.get("pads", [0] * 2 * rank))
        windows = zip(kernel, strides, dilations, strict=True)
        for axis, (taps, stride, dilation) in enumerate(windows):
            if pads[rank + axis] + stride > (taps - 1) * dilation + 1:
                # The last one may begin behind the end.
                return None
            pads[rank + axis] += stride - 1
        return pool(data, kernel, strides, pads, dilations)

    return convert


WINDOW_CONVERTERS: Mapping[str, OpenConverter] = {
    "AveragePool": _pooled("avg"),
    "Conv": _convolved,
    "MaxPool": _pooled("max"),
    "Pad": _pad,
}
