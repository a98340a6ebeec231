"""Operators of torchvision: regions of images, and convolutions that read at places of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.deformable_convolution import DeformableConvolution
from tvm_rammer.frontend.torch.converters.arithmetic import clamped
from tvm_rammer.frontend.torch.converters.layout import sliced
from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, shape_of


def _aligned_regions(
    call: OperatorCall,
    x: Any,
    regions: Any,
    scale: float,
    height: int,
    width: int,
    samples: int,
    aligned: bool,
) -> Any:
    """``roi_align``; TVM's operator knows no pixels whose centres are at halves."""
    if 0 in call.shape:
        return call.filled(call.shape, 0)
    scales = np.array([1, scale, scale, scale, scale])
    shifts = np.array([0, 1, 1, 1, 1]) * (-0.5 if aligned else 0)
    regions = call.emit(relax.op.multiply(call.cast(regions), call.cast(scales)))
    regions = call.emit(relax.op.add(regions, call.cast(shifts)))
    images = _images(call, x, regions)
    starts, ends = sliced(call, regions, 1, 1, 3), sliced(call, regions, 1, 3, 5)
    # As many samples as pixels are none where a region has no size, which TVM cannot sum up.
    larger = call.cast(call.emit(relax.op.greater(ends, starts)), "int8")
    exists = call.cast(call.emit(relax.op.min(larger, axis=[1], keepdims=True)), "bool")
    adaptive = samples <= 0 and aligned
    if adaptive:
        ends = call.emit(relax.op.where(exists, ends, relax.op.add(starts, call.cast(1))))
    regions = call.emit(relax.op.concat([images, starts, ends], 1))
    size = height, width
    result = call.emit(relax.op.vision.roi_align(x, regions, size, 1.0, samples, aligned))
    if not adaptive:
        return result
    exists = call.reshape(exists, (call.shape[0], 1, 1, 1))
    return call.emit(relax.op.where(exists, result, call.cast(0)))


def _images(call: OperatorCall, x: Any, regions: Any) -> Any:
    """Which image each region is of; one of no image reads the nearest."""
    return clamped(call, sliced(call, regions, 1, 0, 1), 0, shape_of(x)[0] - 1)


def _aligned_regions_by_position(
    call: OperatorCall,
    x: Any,
    regions: Any,
    scale: float,
    height: int,
    width: int,
    samples: int,
) -> list[Any]:
    """``ps_roi_align``: every place of a region has channels of its own.

    What a region without a size has is 0, and no NaN.
    """
    if 0 in call.shape:
        return call.only(call.filled(call.shape, 0))
    count, channels, *_ = call.shape
    places = height * width
    whole = _aligned_regions(call, x, regions, scale, height, width, samples, aligned=True)
    whole = call.reshape(whole, (count, channels, places * places))
    own = call.take(whole, relax.const(np.arange(places) * (places + 1), "int64"), 2)
    return call.only(call.reshape(own, call.shape))


def _largest_in_regions(
    call: OperatorCall, x: Any, regions: Any, scale: float, height: int, width: int
) -> list[Any]:
    """``roi_pool``: the largest pixel of each part of a region, 0 of a part without pixels."""
    if 0 in call.shape:
        return call.only(call.filled(call.shape, 0))
    regions = call.cast(regions)
    images = call.cast(call.reshape(_images(call, x, regions), (call.shape[0],)), "int64")
    corners = call.emit(relax.op.multiply(sliced(call, regions, 1, 1), call.cast(scale)))
    half = relax.op.floor(relax.op.add(relax.op.abs(corners), call.cast(0.5)))
    corners = call.emit(relax.op.multiply(relax.op.sign(corners), half))
    result = call.take(x, images, 0)
    for axis, parts in ((2, height), (3, width)):
        start, end = (sliced(call, corners, 1, at, at + 1) for at in (3 - axis, 5 - axis))
        result = _largest_in_parts(call, result, axis, parts, start, end)
    return call.only(result)


def _largest_in_parts(
    call: OperatorCall, x: Any, axis: int, parts: int, start: Any, end: Any
) -> Any:
    """Along one axis, from a start to an end that belongs to it, for each region."""
    size = shape_of(x)[axis]
    extent = relax.op.add(relax.op.subtract(end, start), call.cast(1))
    step = call.emit(
        relax.op.divide(relax.op.maximum(extent, call.cast(1)), call.cast(float(parts)))
    )
    numbers = call.cast(np.arange(parts, dtype="float32")[None])
    low = relax.op.floor(relax.op.multiply(numbers, step))
    high = relax.op.ceil(relax.op.multiply(relax.op.add(numbers, call.cast(1)), step))
    pixels = call.cast(np.arange(size, dtype="float32")[None, None])
    low, high = (
        call.reshape(call.emit(relax.op.add(edge, start)), (shape_of(x)[0], parts, 1))
        for edge in (low, high)
    )
    inside = relax.op.logical_and(relax.op.greater_equal(pixels, low), relax.op.less(pixels, high))
    shape = [shape_of(x)[0], 1, 1, 1, 1]
    shape[axis], shape[axis + 1] = parts, size
    inside = call.reshape(call.emit(inside), shape)
    every = call.emit(relax.op.expand_dims(x, axis))
    candidates = relax.op.where(inside, every, call.cast(-np.inf))
    largest = relax.op.max(candidates, axis=[axis + 1])
    some = call.emit(relax.op.max(call.cast(inside, "int8"), axis=[axis + 1]))
    return call.emit(relax.op.where(call.cast(some, "bool"), largest, call.cast(0)))


def _deformable_convolution(
    call: OperatorCall,
    x: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    convolution = DeformableConvolution(
        (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups, offset_groups
    )
    return convolution.convert(call.emit, x, weight, offset, mask if use_mask else None, bias)


CONVERTERS: dict[str, Converter] = {
    "roi_align.default": _aligned_regions,
    "ps_roi_align.default": _aligned_regions_by_position,
    "roi_pool.default": _largest_in_regions,
    "deform_conv2d.default": _deformable_convolution,
}
