"""Resizing of images: along one axis after the other, with the weights that PyTorch has.

An image's axis is resized by a matrix. It is found by resizing the identity in PyTorch, so that
every rule of coordinates, rounding and anti-aliasing is PyTorch's own. A matrix with few weights
in a row becomes as many reads and products, any other a product of matrices. Where Relax has the
same rule, its ``resize2d`` is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from tvm_rammer.frontend.resized_axis import ResizeRule, resized_axis
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    are_numbers,
    dtype_of,
    is_float,
    shape_of,
    table,
)

_MOST_READS = 4
#: Elements of an axis on which nothing depends.
_FEW = 32


def _nearest(call: OperatorCall, x: Any, size: Any, factors: Any = None) -> Any:
    before, after = shape_of(x)[2:], call.shape[2:]
    if not are_numbers(*before, *after):
        return _of_open_sizes(call, x, "nearest", _scaled, factors)
    whole = all(b % a == 0 for a, b in zip(before, after, strict=True))
    if whole and _same_factors(before, after, factors):
        return call.emit(
            relax.op.image.resize2d(
                x,
                after,
                method="nearest_neighbor",
                coordinate_transformation_mode="asymmetric",
                rounding_method="floor",
            )
        )
    return _by_matrices(call, x)


def _bilinear(
    call: OperatorCall, x: Any, size: Any, align_corners: bool, factors: Any = None
) -> Any:
    _check_floats(call)
    before, after = shape_of(x)[2:], call.shape[2:]
    if not are_numbers(*before, *after):
        return _of_open_sizes(call, x, "linear", _corners if align_corners else _centres, factors)
    fits = 1 not in after if align_corners else _same_factors(before, after, factors)
    # TVM computes coordinates in float32.
    if fits and call.dtype != "float64":
        rule = "align_corners" if align_corners else "half_pixel"
        return call.emit(
            relax.op.image.resize2d(x, after, method="linear", coordinate_transformation_mode=rule)
        )
    return _by_matrices(call, x)


def _nearest_exact(call: OperatorCall, x: Any, *_: Any) -> Any:
    return _by_matrices(call, x)


def _bicubic(
    call: OperatorCall, x: Any, size: Any, align_corners: bool, factors: Any = None
) -> Any:
    _check_floats(call)
    if not are_numbers(*shape_of(x)[2:], *call.shape[2:]):
        return _of_open_sizes(call, x, "cubic", _corners if align_corners else _centres, factors)
    return _by_matrices(call, x)


def _weighted(call: OperatorCall, x: Any, *_: Any) -> Any:
    _check_floats(call)
    return _by_matrices(call, x)


#: Where an output lies in the input, given how long a step is there.
Coordinate = Callable[[Any, Any, Any, Any], Any]


def _scaled(place: Any, step: Any, before: Any, after: Any) -> Any:
    return place * step


def _centres(place: Any, step: Any, before: Any, after: Any) -> Any:
    return (place + 0.5) * step - 0.5


def _corners(place: Any, step: Any, before: Any, after: Any) -> Any:
    return place * ((before - 1.0) / tirx.max(after - 1.0, tirx.const(1.0, "float32")))


def _of_open_sizes(
    call: OperatorCall, x: Any, mode: str, coordinate: Coordinate, factors: Any
) -> Any:
    """By PyTorch's coordinates, in float32, of sizes that each run decides.

    Of factors that it is given, PyTorch takes the steps.
    """
    dtype, given = dtype_of(x), factors or (None, None)
    data = x if mode == "nearest" else call.cast(x, "float32")
    for axis, factor in zip((2, 3), given, strict=True):

        def at(place: Any, before: Any, after: Any, factor: Any = factor) -> Any:
            step = before / after if factor is None else tirx.const(1.0 / factor, "float32")
            return coordinate(place, step, before, after)

        size = call.shape[axis]
        if not call.sizes.are_equal([size], [shape_of(data)[axis]]):
            data = resized_axis(call.builder, data, axis, size, ResizeRule(mode, at))
    return call.cast(data, dtype)


def _check_floats(call: OperatorCall) -> None:
    if not is_float(call.dtype):
        call.refuse("integers can only be resized by their nearest; convert them to floats")


def _same_factors(before: Any, after: Any, factors: Any) -> bool:
    """Whether the factors that PyTorch computes coordinates with are those of the sizes."""
    return not factors or all(
        b == a * factor for a, b, factor in zip(before, after, factors, strict=True)
    )


def _by_matrices(call: OperatorCall, x: Any) -> Any:
    matrices = {axis: _matrix(call, shape_of(x), axis) for axis in (2, 3)}
    for axis, matrix in matrices.items():
        if not np.array_equal(matrix, np.eye(matrix.shape[1])):
            x = _along(call, x, matrix, axis)
    return x


def _matrix(call: OperatorCall, shape: Sequence[int], axis: int) -> Any:
    """What PyTorch makes of an image's axis: a row for each element of the result."""
    import torch

    size, other = shape[axis], 5 - axis
    across, resized_across = _fewer(shape[other], call.shape[other])
    one = torch.eye(size, dtype=torch.float64 if call.dtype == "float64" else torch.float32)
    basis = one[:, None, :, None] if axis == 2 else one[:, None, None, :]
    image = basis.repeat((1, 1, 1, across) if axis == 2 else (1, 1, across, 1))
    names = [argument.name for argument in call.node.target._schema.arguments]
    given = {**dict(zip(names, call.node.args, strict=False)), **call.node.kwargs}
    if given.get("output_size"):
        sizes = {axis: call.shape[axis], other: resized_across}
        given["output_size"] = [sizes[2], sizes[3]]
    resized = call.node.target(**{**given, names[0]: image})
    line = resized[:, 0, :, 0] if axis == 2 else resized[:, 0, 0, :]
    return line.T.numpy()


def _fewer(before: int, after: int) -> tuple[int, int]:
    """Sizes of an axis on which nothing depends: as many elements, or some in that proportion.

    One that is resized stays so: where PyTorch leaves an axis alone, with factors that it is given,
    it takes them for the other one's.
    """
    if before <= _FEW:
        return before, after
    fewer = max(_FEW, -(-before // after))
    resized = max(1, fewer * after // before)
    return fewer, resized + int(resized == fewer and before != after)


def _along(call: OperatorCall, x: Any, matrix: Any, axis: int) -> Any:
    reads = int((matrix != 0).sum(1).max())
    if reads > _MOST_READS:
        if axis == 3:
            return call.emit(relax.op.matmul(x, relax.const(matrix.T.copy(), call.dtype)))
        return call.emit(relax.op.matmul(relax.const(matrix, call.dtype), x))
    places = np.argsort(matrix == 0, axis=1, kind="stable")[:, :reads]
    weights = np.take_along_axis(matrix, places, 1)
    result = None
    for read in range(reads):
        part = call.take(x, table(places[:, read]), axis)
        if np.any(weights[:, read] != 1):
            weight = weights[:, read].reshape([-1 if k == axis else 1 for k in range(4)])
            part = call.emit(relax.op.multiply(part, relax.const(weight, call.dtype)))
        result = part if result is None else call.emit(relax.op.add(result, part))
    return result


def _sampled(
    call: OperatorCall, x: Any, grid: Any, mode: int, padding: int, align_corners: bool
) -> Any:
    """``grid_sample`` of two or three axes."""
    _check_floats(call)
    sizes, rule = shape_of(x)[2:], ("zeros", "border", "reflection")[padding]
    if rule == "reflection" and align_corners:
        # TVM divides by the length between the ends; twice the one element is the same image.
        for axis in (place for place, size in enumerate(sizes, 2) if size == 1):
            x = call.emit(relax.op.concat([x, x], axis))
    grid = call.permute(grid, [0, len(sizes) + 1, *range(1, len(sizes) + 1)])
    method = ("bilinear", "nearest", "bicubic")[mode]
    layout = "NCDHW" if len(sizes) > 2 else "NCHW"
    return call.emit(relax.op.image.grid_sample(x, grid, method, layout, rule, align_corners))


CONVERTERS: dict[str, Converter] = {
    "upsample_nearest2d.vec": _nearest,
    "upsample_bilinear2d.vec": _bilinear,
    "upsample_bicubic2d.vec": _bicubic,
    "_upsample_nearest_exact2d.vec": _nearest_exact,
    "_upsample_bilinear2d_aa.default": _weighted,
    "_upsample_bicubic2d_aa.default": _weighted,
    "_upsample_bilinear2d_aa.vec": _weighted,
    "_upsample_bicubic2d_aa.vec": _weighted,
    "grid_sampler_2d.default": _sampled,
    "grid_sampler_3d.default": _sampled,
}
