"""``Col2Im``: blocks of an image, one for each column of a matrix, added where they overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx, topi


@dataclass(frozen=True)
class _Blocks:
    """How blocks lie along an axis of an image: so many, of ``length`` elements each.

    Element ``e`` of block ``b`` is the image's element ``b * stride + e * dilation - before``.
    """

    size: int
    length: int
    stride: int
    dilation: int
    before: int
    count: int


def col2im(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """Images of any number of axes.

    Parameters
    ----------
    bb : relax.BlockBuilder
    inputs : sequence of relax.Expr
        The blocks ``[batch, channels * elements of a block, blocks]``, and the shapes of an image
        and of a block, which are constants.
    attributes : mapping
        ONNX's ``dilations``, ``pads`` and ``strides``.

    Raises
    ------
    ValueError
        When a shape is not known at compile time.
    """
    data, *shapes = inputs
    if not all(isinstance(shape, tvm.ir.GenericConst) for shape in shapes):
        raise ValueError("the shapes of its image and of its blocks have to be constants")
    image, block = (shape.value.numpy().tolist() for shape in shapes)
    rank = len(image)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = list(map(int, attributes.get("pads", [0] * 2 * rank)))
    axes = []
    for axis, (size, length) in enumerate(zip(image, block, strict=True)):
        stride, dilation = int(strides[axis]), int(dilations[axis])
        room = size + pads[axis] + pads[axis + rank] - dilation * (length - 1) - 1
        axes.append(_Blocks(size, length, stride, dilation, pads[axis], room // stride + 1))
    return bb.emit_te(partial(_image, axes), data, primfunc_name_hint="col2im")


def _image(axes: Sequence[_Blocks], data: te.Tensor) -> te.Tensor:
    lengths, counts = [axis.length for axis in axes], [axis.count for axis in axes]
    batch, channels = data.shape[0], int(data.shape[1]) // prod(lengths)
    apart = topi.reshape(data, (batch, channels, *lengths, *counts))
    elements = [te.reduce_axis((0, axis.length), "element") for axis in axes]

    def pixel(image: tirx.Var, channel: tirx.Var, *place: tirx.Var) -> Any:
        inside, blocks = [], []
        for at, element, axis in zip(place, elements, axes, strict=True):
            start = at + axis.before - element * axis.dilation
            block = tirx.floordiv(start, axis.stride)
            inside += [start >= 0, block < axis.count, block * axis.stride == start]
            blocks.append(tirx.Max(tirx.Min(block, axis.count - 1), 0))
        read = apart(image, channel, *elements, *blocks)
        zero = tirx.const(0, data.dtype)
        return te.sum(tirx.if_then_else(tirx.all(*inside), read, zero), axis=elements)

    return te.compute((batch, channels, *(axis.size for axis in axes)), pixel, name="image")
