"""Resize where a size, before it or after it, is known only when the model runs.

Along each axis an output is a weighted sum of one input (nearest), of two (linear) or of four
(cubic), whose places are computed from the sizes. The formulas are ONNX's (operator Resize, version
19); where all sizes are known, `operators/resizing.py` computes places and weights before the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from tvm_rammer.frontend.onnx.run_time_sizes import as_shape, as_tensor, is_shape
from tvm_rammer.frontend.sizes import as_size

#: Inputs of an output, along an axis.
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def needs_sizes(attributes: Mapping[str, Any]) -> bool:
    """Whether a node asks for what takes all sizes before the run."""
    return (
        bool(attributes.get("antialias", 0) or attributes.get("exclude_outside", 0))
        or _text(attributes, "keep_aspect_ratio_policy", "stretch") != "stretch"
        or _text(attributes, "coordinate_transformation_mode", "half_pixel") not in _COORDINATES
    )


def resize(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """Each axis after the other; ``None`` where all sizes are known."""
    data, _, scales, sizes = [*inputs, None, None, None][:4]
    if is_shape(data):
        return None
    extents = list(data.ty.shape.values)
    if _are_known(extents) and (sizes is None or _is_constant(sizes)):
        return None
    numbers = [axis % len(extents) for axis in attributes.get("axes", range(len(extents)))]
    own = [extents[axis] for axis in numbers]
    if sizes is not None:
        results, factors = list(as_shape(bb, sizes).values), [None] * len(own)
    else:
        factors = scales.value.numpy().tolist()
        results = _scaled(bb, own, factors)
    dtype = str(data.ty.dtype)
    weighs = _text(attributes, "mode", "nearest") != "nearest" and "float" not in dtype
    if weighs:
        data = bb.emit(relax.op.astype(data, "float32"))
    for axis, result, factor in zip(numbers, results, factors, strict=True):
        if factor != 1 and not _is_same(result, extents[axis]):
            data = _along(bb, attributes, data, axis, result, factor)
    return relax.op.astype(data, dtype) if weighs else data


def _scaled(bb: relax.BlockBuilder, sizes: Sequence[Any], scales: Sequence[float]) -> list[Any]:
    """Sizes times scales, in float32 as ONNX infers shapes."""
    if _are_known(sizes):
        products = np.multiply([int(size) for size in sizes], scales, dtype=np.float32)
        return [floor(product) for product in products]
    whole = relax.op.astype(as_tensor(bb, relax.ShapeExpr(list(sizes))), "float32")
    product = relax.op.multiply(whole, relax.const(np.array(scales, np.float32), "float32"))
    grown = bb.emit(relax.op.astype(relax.op.floor(product), "int64"))
    found = as_shape(bb, grown).values
    return [
        floor(np.float32(int(size)) * np.float32(scale)) if isinstance(size, tirx.IntImm) else new
        for size, scale, new in zip(sizes, scales, found, strict=True)
    ]


def _along(
    bb: relax.BlockBuilder,
    attributes: Mapping[str, Any],
    data: relax.Expr,
    axis: int,
    result: Any,
    scale: float | None,
) -> relax.Expr:
    """A tensor, an axis of which is made as long as it shall be.

    Which inputs an output reads, and how much they weigh, is computed once for all its lines.
    """
    mode = _text(attributes, "mode", "nearest")
    taps, extent = _TAPS[mode], data.ty.shape.values[axis]
    is_empty = not isinstance(extent, tirx.IntImm)

    def coordinate(place: tirx.Var, before: Any, after: Any) -> Any:
        return _coordinate(attributes, before, after, scale)(tirx.Cast("float32", place))

    def first(at: Any) -> Any:
        return _nearest(attributes, at) if taps == 1 else tirx.floor(at) - (taps // 2 - 1)

    def places(after: Any, before: Any) -> te.Tensor:
        def place(number: tirx.Var, tap: tirx.Var) -> Any:
            found = tirx.Cast("int64", first(coordinate(number, before, after))) + tap
            return tirx.Cast("int32", tirx.max(tirx.min(found, before - 1), 0))

        return te.compute((after, tirx.IntImm("int64", taps)), place, "places")

    def weights(after: Any, before: Any) -> te.Tensor:
        def weight(number: tirx.Var, tap: tirx.Var) -> Any:
            at = coordinate(number, before, after)
            distance = tirx.abs(at - first(at) - tirx.Cast("float32", tap))
            return 1.0 - distance if taps == 2 else _cubic(attributes, distance)

        return te.compute((after, tirx.IntImm("int64", taps)), weight, "weights")

    def resized(x: te.Tensor, places: te.Tensor, *weights: te.Tensor) -> te.Tensor:
        def element(*own: tirx.Var) -> Any:
            total: Any = None
            for tap in range(taps):
                read = x(*own[:axis], places[own[axis], tap], *own[axis + 1 :])
                if is_empty:
                    # Of nothing there is nothing to read.
                    read = tirx.if_then_else(x.shape[axis] > 0, read, tirx.const(0, str(x.dtype)))
                part = read * weights[0][own[axis], tap] if weights else read
                total = part if total is None else total + part
            return total

        shape = [*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :]]
        return te.compute(shape, element, "resized")

    tables = (places, weights) if taps > 1 else (places,)
    made = [bb.emit_te(table, as_size(result), as_size(extent)) for table in tables]
    return bb.emit_te(resized, data, *made)


def _coordinate(
    attributes: Mapping[str, Any], extent: Any, result: Any, scale: float | None
) -> Callable[[Any], Any]:
    """Where an output lies in the input."""
    mode = _text(attributes, "coordinate_transformation_mode", "half_pixel")
    before, after = (tirx.Cast("float32", tirx.convert(size)) for size in (extent, result))
    factor = after / before if scale is None else tirx.const(scale, "float32")
    if mode == "asymmetric":
        return lambda x: x / factor
    if mode == "align_corners":
        steps = tirx.max(after - 1.0, tirx.const(1.0, "float32"))
        return lambda x: x * (before - 1.0) / steps
    if mode == "pytorch_half_pixel":
        return lambda x: tirx.Select(after > 1.0, (x + 0.5) / factor - 0.5, x * 0.0)
    return lambda x: (x + 0.5) / factor - 0.5


def _nearest(attributes: Mapping[str, Any], at: Any) -> Any:
    mode = _text(attributes, "nearest_mode", "round_prefer_floor")
    if mode == "floor":
        return tirx.floor(at)
    if mode == "ceil":
        return tirx.ceil(at)
    return tirx.ceil(at - 0.5) if mode == "round_prefer_floor" else tirx.floor(at + 0.5)


def _cubic(attributes: Mapping[str, Any], distance: Any) -> Any:
    """Keys, Cubic convolution interpolation for digital image processing, 1981."""
    a = float(attributes.get("cubic_coeff_a", -0.75))
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1.0
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    beyond = tirx.Select(distance < 2.0, far, distance * 0.0)
    return tirx.Select(distance <= 1.0, near, beyond)


def _text(attributes: Mapping[str, Any], name: str, default: str) -> str:
    given = attributes.get(name, default)
    return given.decode() if isinstance(given, bytes) else str(given)


def _are_known(sizes: Sequence[Any]) -> bool:
    return all(isinstance(size, tirx.IntImm) for size in sizes)


def _is_constant(sizes: Any) -> bool:
    known = isinstance(sizes, relax.ShapeExpr) and _are_known(sizes.values)
    return known or isinstance(sizes, GenericConst)


def _is_same(size: Any, other: Any) -> bool:
    if isinstance(other, tirx.IntImm):
        return isinstance(size, int | tirx.IntImm) and int(size) == int(other)
    return isinstance(size, tirx.Var) and size.same_as(other)
