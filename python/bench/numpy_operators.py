"""Operators in numpy and float64, as references for kernels; images are NHWC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def convolution(x: Array, weight: Array, stride: int, padding: int, groups: int = 1) -> Array:
    """A convolution with weights ``[outputs, height, width, inputs of a group]``."""
    outputs, height, width, inputs = weight.shape
    windows = _windows(x, (height, width), stride, padding, 0.0)
    batch, rows, columns = windows.shape[:3]
    patches = windows.reshape(batch, rows, columns, groups, inputs, height, width)
    weights = weight.astype(np.float64).reshape(groups, -1, height, width, inputs)
    if inputs == 1:
        sums = np.einsum("nyxgihw,gohwi->nyxgo", patches, weights)
    else:
        parts = [
            np.tensordot(patches[:, :, :, g], weights[g], ([3, 4, 5], [3, 1, 2]))
            for g in range(groups)
        ]
        sums = np.stack(parts, 3)
    return sums.reshape(batch, rows, columns, outputs)


def max_pool(x: Array, stride: int, size: int = 3) -> Array:
    """The largest of each window; the border is padded by half of it."""
    return _windows(x, (size, size), stride, size // 2, -np.inf).max((-2, -1))


def average_pool(x: Array, stride: int, size: int = 3) -> Array:
    """The mean of each window, over what of it lies inside."""
    inside = _windows(np.ones_like(x), (size, size), stride, size // 2, 0.0).sum((-2, -1))
    return _windows(x, (size, size), stride, size // 2, 0.0).sum((-2, -1)) / inside


def softmax(x: Array) -> Array:
    """Along the last axis."""
    exponentials = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def layer_norm(x: Array, epsilon: float = 1e-5) -> Array:
    """Along the last axis, without scale and shift."""
    wide = x.astype(np.float64)
    variance = wide.var(-1, keepdims=True)
    return (wide - wide.mean(-1, keepdims=True)) / np.sqrt(variance + epsilon)


def erf(x: Array) -> Array:
    """The error function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _windows(x: Array, size: tuple[int, int], stride: int, padding: int, border: float) -> Array:
    """``[batch, rows, columns, channels, height, width]`` in float64."""
    edges = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    padded = np.pad(x.astype(np.float64), edges, constant_values=border)
    views = np.lib.stride_tricks.sliding_window_view(padded, size, (1, 2))
    return views[:, ::stride, ::stride]
