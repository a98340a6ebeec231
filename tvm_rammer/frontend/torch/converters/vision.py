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
    # A region of no image reads the nearest one.
    images = clamped(call, sliced(call, regions, 1, 0, 1), 0, shape_of(x)[0] - 1)
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
    "deform_conv2d.default": _deformable_convolution,
}
