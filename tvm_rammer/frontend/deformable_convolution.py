"""Deformable convolutions: data are read at places that are data themselves, then multiplied.

"Deformable ConvNets v2" (https://arxiv.org/abs/1811.11168); as in ONNX and torchvision, what is
read outside of the image is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax


@dataclass(frozen=True)
class DeformableConvolution:
    """One of images [batch, channels, height, width].

    Attributes
    ----------
    stride, padding, dilation : tuple of int
        For the height and the width; padding that is before them.
    groups, offset_groups : int
        Groups of channels with weights, and with offsets, of their own.
    """

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    offset_groups: int

    def convert(
        self,
        emit: Callable[[Any], Any],
        x: Any,
        weight: Any,
        offset: Any,
        mask: Any = None,
        bias: Any = None,
    ) -> Any:
        """The convolution as Relax expressions.

        Parameters
        ----------
        emit : callable
            Puts an expression into the function that is built; gives its variable.
        x, weight, offset : relax.Expr
            Images, weights [channels, channels of a group, height, width], and for every element
            of a window and every place of the result how far down and right of it to read.
        mask, bias : relax.Expr, optional
            What is multiplied with every element that is read, and added to every result.
        """
        batch, _, *out = _shape(offset)
        high, per_group, *window = _shape(weight)
        taps, places, groups = window[0] * window[1], out[0] * out[1], self.groups
        read = self._read(emit, x, offset, mask, window)
        # [batch, offset group, tap, place, channel] with the channels of all groups together.
        read = emit(relax.op.permute_dims(read, [0, 3, 2, 1, 4]))
        read = emit(relax.op.reshape(read, (batch, places, taps, groups, per_group)))
        read = emit(relax.op.permute_dims(read, [3, 0, 1, 2, 4]))
        rows = emit(relax.op.reshape(read, (groups, batch * places, taps * per_group)))
        columns = emit(relax.op.reshape(weight, (groups, high // groups, per_group, taps)))
        columns = emit(relax.op.permute_dims(columns, [0, 3, 2, 1]))
        columns = emit(relax.op.reshape(columns, (groups, taps * per_group, high // groups)))
        result = emit(relax.op.matmul(rows, columns))
        result = emit(relax.op.reshape(result, (groups, batch, *out, high // groups)))
        result = emit(relax.op.permute_dims(result, [1, 0, 4, 2, 3]))
        result = emit(relax.op.reshape(result, (batch, high, *out)))
        if bias is None:
            return result
        return emit(relax.op.add(result, emit(relax.op.reshape(bias, (1, high, 1, 1)))))

    def _read(
        self, emit: Callable[[Any], Any], x: Any, offset: Any, mask: Any, window: list[int]
    ) -> Any:
        """Elements [batch, offset group, tap, place, channel], interpolated between four."""
        batch, channels, height, width = _shape(x)
        dtype, own = str(x.ty.dtype), self.offset_groups
        out = _shape(offset)[2:]
        taps, places = window[0] * window[1], out[0] * out[1]
        parts = emit(relax.op.reshape(offset, (batch, own, taps, 2, places)))
        images = emit(relax.op.reshape(x, (batch, own, channels // own, height * width)))
        images = emit(relax.op.permute_dims(images, [0, 1, 3, 2]))
        pixels = emit(relax.op.reshape(images, (batch * own * height * width, channels // own)))
        first = np.arange(batch * own).reshape(batch, own, 1, 1) * (height * width)
        ends = []
        for axis, size in enumerate((height, width)):
            moved = emit(relax.op.take(parts, relax.const(axis, "int64"), 3))
            start = relax.const(self._places(axis, window, out), dtype)
            ends.append(_neighbours(emit, emit(relax.op.add(moved, start)), size))
        result = None
        for down, row_weight in ends[0]:
            for right, column_weight in ends[1]:
                row = relax.op.multiply(down, relax.const(width, "int64"))
                place = relax.op.add(relax.op.add(row, right), relax.const(first, "int64"))
                pixel = emit(relax.op.take(pixels, emit(place), 0, "clip"))
                scale = emit(relax.op.multiply(row_weight, column_weight))
                scaled = relax.op.multiply(pixel, relax.op.expand_dims(scale, -1))
                result = emit(scaled if result is None else relax.op.add(result, scaled))
        if mask is None:
            return result
        factor = emit(relax.op.reshape(mask, (batch, own, taps, places, 1)))
        return emit(relax.op.multiply(result, factor))

    def _places(self, axis: int, window: list[int], out: list[int]) -> Any:
        """Where a convolution that is not deformed reads, by tap and place of the result."""
        taps = np.indices(window)[axis].reshape(-1, 1) * self.dilation[axis]
        places = np.indices(out)[axis].reshape(1, -1) * self.stride[axis]
        return taps + places - self.padding[axis]


def _neighbours(emit: Callable[[Any], Any], place: Any, size: int) -> list[tuple[Any, Any]]:
    """The two elements of an axis around a place, and their weights: 0 if there is none."""
    dtype = str(place.ty.dtype)
    below = emit(relax.op.floor(place))
    share = emit(relax.op.subtract(place, below))
    found = []
    for step, weight in ((0, relax.op.subtract(relax.const(1, dtype), share)), (1, share)):
        end = emit(relax.op.add(below, relax.const(step, dtype)))
        last = relax.const(size - 1, dtype)
        inside = emit(relax.op.minimum(relax.op.maximum(end, relax.const(0, dtype)), last))
        there = relax.op.equal(inside, end)
        weighed = emit(relax.op.where(there, weight, relax.const(0, dtype)))
        found.append((emit(relax.op.astype(inside, "int64")), weighed))
    return found


def _shape(value: Any) -> list[int]:
    return [int(size) for size in value.ty.shape]
