"""Resize and Upsample where TVM's importer takes the scales, the axes or the coordinates otherwise.

Along each axis an output is a weighted sum of inputs whose places and weights are known, whatever
the mode: nearest has one input, linear two, cubic four, with ``antialias`` more. The formulas are
ONNX's (operator Resize, version 19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode
from tvm_rammer.frontend.onnx.run_time_resize import needs_sizes

#: With more inputs than this for an output, the axis is a product with a matrix.
_GATHERED = 4
_TVM_COORDINATES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
)


@dataclass(frozen=True)
class _Axis:
    """How an axis is resized.

    Attributes
    ----------
    axis, size, result : int
        Which, and its extent before and after.
    scale : float
        Of the coordinates: what was given, not what rounding makes of it.
    roi : tuple of float
        Where the region of ``tf_crop_and_resize`` begins and ends.
    """

    axis: int
    size: int
    result: int
    scale: float
    roi: tuple[float, float]


def resize(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Resize, and Upsample: each axis after the other; ``None`` where TVM's importer is right."""
    if _is_left_to_the_run(node):
        return None
    axes = [
        axis
        for axis in _axes(node)
        if axis.result != axis.size or axis.scale != 1 or axis.roi != (0.0, 1.0)
    ]
    if not axes:
        return (node.inputs[0],)
    if _known_to_tvm(node, axes):
        return _without_empty_scales(node, nodes)
    value = node.inputs[0]
    dtype = node.dtype(value)
    if not np.issubdtype(dtype, np.floating) and node.text("mode", "nearest") != "nearest":
        value = nodes.cast(value, np.float32)
    rank = len(node.shape(node.inputs[0]))
    real = dtype if np.issubdtype(dtype, np.floating) else np.dtype(np.float32)
    beyond = []
    for axis in axes:
        coordinates = _coordinates(node, axis)
        places, weights = _taps(node, axis, coordinates)
        value = _weighted(nodes, value, axis, places, weights, rank, real)
        outside = (coordinates < 0) | (coordinates > axis.size - 1)
        if node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
            beyond.append((axis, outside))
    if any(mask.any() for _, mask in beyond):
        value = _extrapolated(node, nodes, value, beyond, rank, real)
    if not np.issubdtype(dtype, np.floating) and node.text("mode", "nearest") != "nearest":
        value = nodes.cast(value, dtype)
    return (value,)


def _is_left_to_the_run(node: OperatorNode) -> bool:
    """Whether the importer computes places from sizes that only the run tells."""
    if node.kind != "Resize" or node.version < 11 or needs_sizes(node.attributes):
        return False
    sizes_are_known = not node.input(3) or node.constant(3) is not None
    scales_are_known = bool(node.input(3)) or node.constant(2) is not None
    is_known = sizes_are_known and node.known_shape(node.inputs[0]) is not None
    return scales_are_known and not is_known


def _without_empty_scales(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """The same, but for the empty scales beside sizes of version 11: TVM's importer wants none."""
    if not node.input(2) or not node.input(3):
        return None
    x, sizes = node.inputs[0], node.inputs[3]
    return (nodes.op("Resize", x, "", "", sizes, **node.attributes),)


def _axes(node: OperatorNode) -> list[_Axis]:
    shape = node.shape(node.inputs[0])
    numbers = [axis % len(shape) for axis in node.attributes.get("axes", range(len(shape)))]
    scales, sizes, roi = _given(node)
    extents = [shape[axis] for axis in numbers]
    begins, ends = [0.0] * len(numbers), [1.0] * len(numbers)
    crop = node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    if crop and roi is not None and len(roi) == 2 * len(numbers):
        begins, ends = list(roi[: len(numbers)]), list(roi[len(numbers) :])
    if scales is not None:
        spans = [
            extent * (end - begin) if crop else extent
            for extent, begin, end in zip(extents, begins, ends, strict=True)
        ]
        # In float32, as ONNX infers shapes: 5 times 1.4 is 7.
        products = np.multiply(spans, scales, dtype=np.float32)
        results = [floor(product) for product in products]
    else:
        assert sizes is not None
        results = [int(size) for size in sizes]
        scales = [size / extent for size, extent in zip(results, extents, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = (min if policy == "not_larger" else max)(scales)
            scales = [scale] * len(numbers)
            results = [floor(scale * extent + 0.5) for extent in extents]
    return [
        _Axis(*each)
        for each in zip(
            numbers,
            extents,
            results,
            map(float, scales),
            zip(begins, ends, strict=True),
            strict=True,
        )
    ]


def _given(
    node: OperatorNode,
) -> tuple[Sequence[float] | None, Sequence[int] | None, Sequence[float] | None]:
    """Scales, sizes and the region of interest; what is left out is ``None``."""
    if node.kind == "Upsample" and "scales" in node.attributes:
        return node.attributes["scales"], None, None
    if node.kind == "Upsample" or node.version < 11:
        return node.needed_constant(1, "scale").tolist(), None, None
    roi = node.constant(1)
    crop = node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    if crop and node.input(1) and roi is None:
        raise node.refusal("its region of interest is no constant")
    region = None if roi is None else roi.tolist()
    scales = node.constant(2)
    if node.input(3):
        return None, node.needed_constant(3, "size").tolist(), region
    if scales is None or not scales.size:
        raise node.refusal("neither its scales nor its sizes are constants")
    return scales.tolist(), None, region


def _known_to_tvm(node: OperatorNode, axes: Sequence[_Axis]) -> bool:
    """Whether TVM's importer understands the node, and as ONNX does."""
    rank = len(node.shape(node.inputs[0]))
    mode = node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    return (
        node.kind == "Resize"
        and node.version >= 11
        and rank in (3, 4)
        and "axes" not in node.attributes
        and all(axis.axis >= 2 for axis in axes)
        and all(axis.scale * axis.size == axis.result for axis in axes)
        and not node.attributes.get("antialias", 0)
        and node.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        and mode in ("nearest", "linear")
        and coordinates in _TVM_COORDINATES
        # TVM divides by one less than the size of the result.
        and not (coordinates == "align_corners" and _ends_with_one(node, axes))
        and node.dtype(node.inputs[0]) == np.float32
        and (
            mode == "linear"
            or (coordinates, node.text("nearest_mode", "round_prefer_floor"))
            in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"))
        )
    )


def _ends_with_one(node: OperatorNode, axes: Sequence[_Axis]) -> bool:
    """Whether an axis of the result has one element."""
    sizes = dict(enumerate(node.shape(node.inputs[0])))
    return 1 in {**sizes, **{axis.axis: axis.result for axis in axes}}.values()


def _coordinates(node: OperatorNode, axis: _Axis) -> np.ndarray:
    """Where each output lies in the input (float64, one for each)."""
    default = "asymmetric" if node.kind == "Upsample" or node.version < 11 else "half_pixel"
    mode = node.text("coordinate_transformation_mode", default)
    x = np.arange(axis.result, dtype=np.float64)
    if mode == "asymmetric":
        return x / axis.scale
    if mode == "align_corners":
        # ONNX: the length is what the scale makes of it, before it is rounded.
        length = axis.scale * axis.size
        return x * (axis.size - 1) / (length - 1) if length != 1 else x * 0
    if mode == "tf_crop_and_resize":
        begin, end = axis.roi
        if axis.result == 1:
            return np.full(1, (begin + end) * (axis.size - 1) / 2)
        step = (end - begin) * (axis.size - 1) / (axis.result - 1)
        return begin * (axis.size - 1) + x * step
    if mode == "pytorch_half_pixel" and axis.result == 1:
        return x * 0
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / axis.scale
    found = (x + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        adjustment = axis.result / (axis.scale * axis.size)
        return found + axis.size / 2 * (1 - adjustment)
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise node.refusal(f"coordinate_transformation_mode {mode!r} is none of ONNX's")
    return found


def _taps(
    node: OperatorNode, axis: _Axis, coordinates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each output the places and weights of its inputs, [result, taps]."""
    mode = node.text("mode", "nearest")
    if mode == "nearest":
        places = _nearest(node, coordinates)[:, None]
        return np.clip(places, 0, axis.size - 1), np.ones(places.shape)
    if mode not in ("linear", "cubic"):
        raise node.refusal(f"mode {mode!r} is none of ONNX's")
    wide = max(1.0, 1 / axis.scale) if node.attributes.get("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) * wide
    first = np.floor(coordinates - reach).astype(np.int64) + 1
    count = int(np.floor(2 * reach)) + (wide != 1)
    places = first[:, None] + np.arange(count)
    distance = (coordinates[:, None] - places) / wide
    if mode == "linear":
        weights = np.maximum(0, 1 - np.abs(distance))
    else:
        weights = _cubic(np.abs(distance), float(node.attributes.get("cubic_coeff_a", -0.75)))
    if node.attributes.get("exclude_outside", 0):
        weights = np.where((places >= 0) & (places < axis.size), weights, 0)
    return np.clip(places, 0, axis.size - 1), weights / weights.sum(axis=1, keepdims=True)


def _nearest(node: OperatorNode, coordinates: np.ndarray) -> np.ndarray:
    default = "floor" if node.kind == "Upsample" or node.version < 11 else "round_prefer_floor"
    mode = node.text("nearest_mode", default)
    # As float32 has them: a coordinate that is a whole number up to rounding is that number.
    near = np.round(coordinates, 6)
    rounded = {
        "floor": np.floor(near),
        "ceil": np.ceil(near),
        "round_prefer_floor": np.ceil(near - 0.5),
        "round_prefer_ceil": np.floor(near + 0.5),
    }
    if mode not in rounded:
        raise node.refusal(f"nearest_mode {mode!r} is none of ONNX's")
    return rounded[mode].astype(np.int64)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys, Cubic convolution interpolation for digital image processing, 1981."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _weighted(
    nodes: Nodes,
    value: str,
    axis: _Axis,
    places: np.ndarray,
    weights: np.ndarray,
    rank: int,
    dtype: np.dtype,
) -> str:
    """The weighted sums along an axis."""
    used = weights.any(axis=0)
    places, weights = places[:, used], weights[:, used]
    if places.shape[1] > _GATHERED:
        return _product(nodes, value, axis, places, weights, rank, dtype)
    column = [1] * rank
    column[axis.axis] = axis.result
    total = ""
    for where, weight in zip(places.T, weights.T, strict=True):
        part = nodes.op("Gather", value, nodes.constant(where, np.int64), axis=axis.axis)
        if (weight != 1).any():
            part = nodes.op("Mul", part, nodes.constant(weight.reshape(column), dtype))
        total = nodes.op("Add", total, part) if total else part
    return total


def _product(
    nodes: Nodes,
    value: str,
    axis: _Axis,
    places: np.ndarray,
    weights: np.ndarray,
    rank: int,
    dtype: np.dtype,
) -> str:
    matrix = np.zeros((axis.size, axis.result))
    for number, (where, weight) in enumerate(zip(places, weights, strict=True)):
        np.add.at(matrix[:, number], where, weight)
    last = [*(a for a in range(rank) if a != axis.axis), axis.axis]
    back = [int(place) for place in np.argsort(last)]
    moved = axis.axis != rank - 1
    rows = nodes.op("Transpose", value, perm=last) if moved else value
    result = nodes.op("MatMul", rows, nodes.constant(matrix, dtype))
    return nodes.op("Transpose", result, perm=back) if moved else result


def _extrapolated(
    node: OperatorNode,
    nodes: Nodes,
    value: str,
    beyond: Sequence[tuple[_Axis, np.ndarray]],
    rank: int,
    dtype: np.dtype,
) -> str:
    """Outputs that lie outside of the input are a value of their own."""
    outside = np.zeros([1] * rank, bool)
    for axis, mask in beyond:
        column = [1] * rank
        column[axis.axis] = axis.result
        outside = outside | mask.reshape(column)
    own = nodes.constant(node.attributes.get("extrapolation_value", 0.0), dtype)
    return nodes.op("Where", nodes.constant(outside, np.bool_), own, value)
