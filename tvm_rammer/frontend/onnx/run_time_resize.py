"""Resize where a size, before it or after it, is known only when the model runs.

The formulas are ONNX's (operator Resize, version
19); where all sizes are known, `operators/resizing.py` computes places and weights before the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from tvm_rammer.frontend.onnx.run_time_sizes import as_shape, as_tensor, is_shape
from tvm_rammer.frontend.resized_axis import ResizeRule, resized_axis

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
            data = resized_axis(bb, data, axis, result, _rule(attributes, factor))
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


def _rule(attributes: Mapping[str, Any], scale: float | None) -> ResizeRule:
    return ResizeRule(
        _text(attributes, "mode", "nearest"),
        lambda *place: _coordinate(attributes, scale, *place),
        lambda at: _nearest(attributes, at),
        float(attributes.get("cubic_coeff_a", -0.75)),
    )


def _coordinate(
    attributes: Mapping[str, Any], scale: float | None, place: Any, before: Any, after: Any
) -> Any:
    """Where an output lies in the input."""
    mode = _text(attributes, "coordinate_transformation_mode", "half_pixel")
    factor = after / before if scale is None else tirx.const(scale, "float32")
    if mode == "asymmetric":
        return place / factor
    if mode == "align_corners":
        steps = tirx.max(after - 1.0, tirx.const(1.0, "float32"))
        return place * (before - 1.0) / steps
    if mode == "pytorch_half_pixel":
        return tirx.Select(after > 1.0, (place + 0.5) / factor - 0.5, place * 0.0)
    return (place + 0.5) / factor - 0.5


def _nearest(attributes: Mapping[str, Any], at: Any) -> Any:
    mode = _text(attributes, "nearest_mode", "round_prefer_floor")
    if mode == "floor":
        return tirx.floor(at)
    if mode == "ceil":
        return tirx.ceil(at)
    return tirx.ceil(at - 0.5) if mode == "round_prefer_floor" else tirx.floor(at + 0.5)


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
