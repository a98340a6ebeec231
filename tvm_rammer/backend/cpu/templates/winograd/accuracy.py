"""How far a convolution by Winograd's algorithm is from the exact one, tried out on random data.

The error is the largest one of a few hundred tiles, in units of the root mean square of the exact
outputs. Inputs and weights are standard normal: what cancels in a network's own data cancels in the
algorithm too, so this is a typical error and no bound for every possible input.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tvm_rammer.backend.cpu.templates.winograd.matrices import Matrix, Transform, along

#: Enough for a steady maximum, few enough for milliseconds.
_TILES, _CHANNELS = 8, 16


@lru_cache(maxsize=256)
def winograd_error(transform: Transform, in_channels: int) -> float:
    """The largest error relative to the root mean square of the outputs, in float32."""
    rng = np.random.default_rng(0)
    side = transform.inputs
    data = rng.standard_normal((side, side, in_channels, _TILES)).astype(np.float32)
    weight = rng.standard_normal((_CHANNELS, 3, 3, in_channels)).astype(np.float32)
    exact = _direct(data.astype(np.float64), weight.astype(np.float64), transform.outputs)
    error = np.abs(_winograd(transform, data, weight) - exact).max()
    return float(error / np.sqrt(np.mean(exact**2)))


def _direct(data: np.ndarray, weight: np.ndarray, side: int) -> np.ndarray:
    """``[y, x, tile, out]`` of ``[y, x, in, tile]``."""
    total = np.zeros((side, side, data.shape[3], weight.shape[0]))
    for y, x in np.ndindex(3, 3):
        window = data[y : y + side, x : x + side]
        total += window.swapaxes(2, 3) @ weight[:, y, x].T
    return total


def _winograd(transform: Transform, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The same in the kernel's arithmetic: rounded steps, a sum over one channel after another."""
    packed = transform.transform_weight(weight).astype(np.float32)
    moved = _both_sides(transform.data, data).reshape(transform.products, *data.shape[2:])
    total = np.zeros((transform.products, data.shape[3], weight.shape[0]), np.float32)
    for channel in range(data.shape[2]):
        total += moved[:, channel, :, None] * packed[:, channel, None, :]
    side = transform.inputs
    return _both_sides(transform.inverse, total.reshape(side, side, *total.shape[1:]))


def _both_sides(factors: tuple[Matrix, ...], array: np.ndarray) -> np.ndarray:
    """Apply the factors along the first axis, then along the second."""
    for _ in range(2):
        array = along(factors, array).swapaxes(0, 1)
    return array
