"""How far a convolution by Winograd's algorithm is from the exact one, tried out on random data.

The error is the largest one of some tiles, in units of the root mean square of the exact
outputs. Inputs and weights are standard normal: what cancels in a network's own data cancels in the
algorithm too, so this is a typical error and no bound for every possible input.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tvm_rammer.backend.cpu.templates.winograd.matrices import Matrix, Transform, along

#: Enough for a steady maximum, few enough for milliseconds.
_TILES, _CHANNELS = 8, 16
_LINE_TILES, _LINE_CHANNELS = 16, 8
#: Of sums along lines: in longer ones the error grows as that of the direct convolution does.
_MOST_STEPS = 4096


@lru_cache(maxsize=256)
def winograd_error(transform: Transform, in_channels: int) -> float:
    """The largest error relative to the root mean square of the outputs, in float32."""
    rng = np.random.default_rng(0)
    side = transform.inputs
    data = rng.standard_normal((side, side, in_channels, _TILES)).astype(np.float32)
    weight = rng.standard_normal((_CHANNELS, 3, 3, in_channels)).astype(np.float32)
    exact = _direct(data.astype(np.float64), weight.astype(np.float64), transform.outputs)
    return _relative(_winograd(transform, data, weight), exact)


@lru_cache(maxsize=256)
def line_error(transform: Transform, steps: int) -> float:
    """The same by minimal filtering along one axis, of sums of so many steps."""
    steps = min(steps, _MOST_STEPS)
    rng = np.random.default_rng(0)
    data = rng.standard_normal((transform.inputs, steps, _LINE_TILES)).astype(np.float32)
    weight = rng.standard_normal((transform.taps, steps, _LINE_CHANNELS)).astype(np.float32)
    exact = _direct_line(data.astype(np.float64), weight.astype(np.float64))
    return _relative(_filtered(transform, data, weight), exact)


def _relative(got: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(got - exact).max() / np.sqrt(np.mean(exact**2)))


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


def _direct_line(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``[output, tile, channel]`` of ``[input, step, tile]``."""
    outputs = len(data) - len(weight) + 1
    windows = (data[tap : tap + outputs].swapaxes(1, 2) @ w for tap, w in enumerate(weight))
    return np.asarray(sum(windows))


def _filtered(transform: Transform, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The same in the kernel's arithmetic: rounded steps, summed up one after another."""
    packed = np.tensordot(np.array(transform.weight), weight.astype(np.float64), 1)
    packed, moved = packed.astype(np.float32), along(transform.data, data)
    total = np.zeros((transform.inputs, _LINE_TILES, _LINE_CHANNELS), np.float32)
    for step in range(data.shape[1]):
        total += moved[:, step, :, None] * packed[:, step, None, :]
    return along(transform.inverse, total)
