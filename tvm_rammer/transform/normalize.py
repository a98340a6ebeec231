"""Normalisations as tensor expressions: the mean is subtracted before anything is squared."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import te, tirx, topi


def normalize(
    data: te.Tensor,
    scale: te.Tensor | None,
    shift: te.Tensor | None,
    *,
    axes: Sequence[int],
    epsilon: float,
    centred: bool = True,
) -> te.Tensor:
    """``(data - mean) / sqrt(variance + epsilon) * scale + shift``.

    Parameters
    ----------
    data : te.Tensor
    scale, shift : te.Tensor or None
        Broadcast to the shape of the data.
    axes : sequence of int
        Axes that the mean and the variance are taken over.
    epsilon : float
    centred : bool
        Whether the mean is subtracted, from the data and for the variance.
    """
    total = topi.sum(data, list(axes), keepdims=True)
    count = tirx.const(prod(int(data.shape[axis]) for axis in axes), data.dtype)

    def centred_at(*indices: Any) -> Any:
        mean = total(*broadcast(indices, total.shape)) / count
        return data(*indices) - mean if centred else data(*indices)

    difference = te.compute(data.shape, centred_at, name="difference", tag=topi.tag.INJECTIVE)
    squares = topi.sum(topi.multiply(difference, difference), list(axes), keepdims=True)

    def result(*indices: Any) -> Any:
        spread = squares(*broadcast(indices, squares.shape)) / count
        value = difference(*indices) * te.rsqrt(spread + tirx.const(epsilon, data.dtype))
        value = value if scale is None else value * scale(*broadcast(indices, scale.shape))
        return value if shift is None else value + shift(*broadcast(indices, shift.shape))

    return te.compute(data.shape, result, name="normalized", tag=topi.tag.INJECTIVE)


def normalize_groups(
    data: te.Tensor,
    scale: te.Tensor,
    shift: te.Tensor,
    *,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float,
) -> te.Tensor:
    """Normalise over ``axes`` and over the channels of each group.

    Parameters
    ----------
    data : te.Tensor
    scale, shift : te.Tensor
        One element for each channel.
    num_groups : int
        Consecutive channels belong together.
    channel_axis : int
    axes : sequence of int
        Axes other than the channels.
    epsilon : float
    """
    shape = [int(extent) for extent in data.shape]
    channel_axis %= len(shape)
    of_group = shape[channel_axis] // num_groups
    grouped = [*shape[:channel_axis], num_groups, of_group, *shape[channel_axis + 1 :]]
    others = [axis % len(shape) for axis in axes]
    over = [axis + (axis > channel_axis) for axis in others]
    of_channel = [1] * channel_axis + [num_groups, of_group] + [1] * (len(shape) - 1 - channel_axis)
    result = normalize(
        topi.reshape(data, grouped),
        topi.reshape(scale, of_channel),
        topi.reshape(shift, of_channel),
        axes=sorted([*over, channel_axis + 1]),
        epsilon=epsilon,
    )
    return topi.reshape(result, shape)


def broadcast(indices: Sequence[Any], shape: Sequence[Any]) -> list[Any]:
    """The indices into a tensor of a shape that is broadcast."""
    last = indices[len(indices) - len(shape) :]
    return [
        tirx.const(0, str(index.ty))
        if isinstance(extent, int | tirx.IntImm) and int(extent) == 1
        else index
        for index, extent in zip(last, shape, strict=True)
    ]
