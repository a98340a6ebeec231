"""Convolutions and pools with attributes or results that TVM's importer drops or misreads."""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

#: Since this version of ONNX's operators regions are in half pixels, unless they say otherwise.
_HALF_PIXELS_SINCE = 16


def conv_transpose(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """ConvTranspose with ``output_shape``, which says what the padding is, or more padding behind
    its result than a stride."""
    wanted = node.attributes.get("output_shape")
    automatic = node.text("auto_pad", "NOTSET")
    if wanted is None and automatic in ("NOTSET", "VALID"):
        return _padded_beyond(node, nodes)
    x, w = node.inputs[:2]
    kernel = node.shape(w)[2:]
    rank = len(kernel)
    strides, dilations, extra = _steps(node, rank)
    before, after = [], []
    for axis, size in enumerate(node.shape(x)[2:]):
        whole = strides[axis] * (size - 1) + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        target = size * strides[axis] if wanted is None else wanted[axis - rank]
        total = whole - target
        if total < 0:
            extra[axis] -= total
            total = 0
        half = total // 2
        # ONNX gives the odd element to the end with SAME_UPPER, and to the beginning otherwise.
        before.append(half if automatic == "SAME_UPPER" else total - half)
        after.append(total - before[-1])
    kept = {
        key: value
        for key, value in node.attributes.items()
        if key not in ("output_shape", "auto_pad", "pads", "output_padding")
    }
    pads = [*before, *after]
    return (
        nodes.op(
            "ConvTranspose", *filter(None, node.inputs), pads=pads, output_padding=extra, **kept
        ),
    )


def _steps(node: OperatorNode, rank: int) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and the padding behind the result."""
    strides, dilations, extra = (
        list(node.attributes.get(name, [default] * rank))
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    return strides, dilations, extra


def _padded_beyond(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """ConvTranspose with less padding behind its result than a stride, which TVM wants.

    A zero behind the kernel makes the result longer by the dilation; padding takes away the rest.
    """
    x, w, *bias = node.inputs
    shape, dtype = list(node.shape(w)), node.dtype(w)
    rank = len(shape) - 2
    strides, dilations, extra = _steps(node, rank)
    beyond = [axis for axis in range(rank) if extra[axis] >= strides[axis]]
    if not beyond:
        return None
    pads = list(node.attributes.get("pads", [0] * 2 * rank))
    for axis in beyond:
        if extra[axis] >= dilations[axis]:
            raise node.refusal(
                f"its output_padding of {extra[axis]} is neither less than its stride nor than its "
                "dilation; export it with less"
            )
        zeros = np.zeros([*shape[: axis + 2], 1, *shape[axis + 3 :]])
        w = nodes.op("Concat", w, nodes.constant(zeros, dtype), axis=axis + 2)
        shape[axis + 2] += 1
        pads[axis + rank] += dilations[axis] - extra[axis]
        extra[axis] = 0
    changed = ("kernel_shape", "pads", "output_padding", "auto_pad")
    kept = {key: value for key, value in node.attributes.items() if key not in changed}
    inputs = [x, w, *filter(None, bias)]
    return (nodes.op("ConvTranspose", *inputs, pads=pads, output_padding=extra, **kept),)


def max_pool(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """MaxPool without the places of the maxima; SAME_LOWER keeps what strides leave over."""
    if node.wants(1):
        raise node.refusal(
            "the places of the maxima (its second result) are read; export the model without"
        )
    if node.text("auto_pad", "NOTSET") != "SAME_LOWER":
        return None
    kernel = node.attributes["kernel_shape"]
    strides = node.attributes.get("strides", [1] * len(kernel))
    dilations = node.attributes.get("dilations", [1] * len(kernel))
    shape = node.known_shape(node.inputs[0])
    if shape is None:
        return None
    sizes = shape[2:]
    if not any(size % stride for size, stride in zip(sizes, strides, strict=True)):
        return None
    # As many windows as strides begin, the odd element of the padding before the first.
    totals = [
        max(0, -(-size // stride) * stride - stride + (taps - 1) * dilation + 1 - size)
        for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    pads = [*(total - total // 2 for total in totals), *(total // 2 for total in totals)]
    kept = {key: value for key, value in node.attributes.items() if key not in ("auto_pad", "pads")}
    return (nodes.op("MaxPool", node.inputs[0], pads=pads, **kept),)


def roi_align(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """RoiAlign of averages; TVM takes its largest of other numbers than ONNX does.

    In half pixels ONNX subtracts half a pixel from a region that is scaled, TVM from the region.
    """
    if node.text("mode", "avg") == "max":
        raise node.refusal("its mode is 'max', which TVM computes otherwise; export it with 'avg'")
    usual = "half_pixel" if node.version >= _HALF_PIXELS_SINCE else "output_half_pixel"
    scale = node.attributes.get("spatial_scale", 1.0)
    if node.text("coordinate_transformation_mode", usual) != "half_pixel" or scale == 1:
        return None
    x, regions, images = node.inputs
    shift = nodes.constant(0.5 - 0.5 / scale, node.dtype(regions))
    return (nodes.op("RoiAlign", x, nodes.op("Add", regions, shift), images, **node.attributes),)


def nhwc_conv(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """NhwcConv: a convolution of images whose channels are last."""
    rank = len(node.shape(node.inputs[0]))
    first = nodes.op("Transpose", node.inputs[0], perm=[0, rank - 1, *range(1, rank - 1)])
    result = nodes.op("Conv", first, *filter(None, node.inputs[1:]), **node.attributes)
    return (nodes.op("Transpose", result, perm=[0, *range(2, rank), 1]),)
