"""How far a convolution by minimal filtering along one axis is from the exact one, tried out.

Inputs and weights are standard normal; the error is the largest one of some tiles, in units of the
root mean square of the exact outputs, as in ``winograd.accuracy``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tvm_rammer.backend.cpu.templates.winograd.matrices import Transform, along

#: Enough for a steady maximum, few enough for milliseconds.
_TILES, _CHANNELS = 16, 8
#: In longer sums the error grows as that of the direct convolution does.
_MOST_STEPS = 4096


@lru_cache(maxsize=256)
def line_error(transform: Transform, steps: int) -> float:
    """The largest error, relative to the root mean square of the outputs, of float32 sums."""
    steps = min(steps, _MOST_STEPS)
    rng = np.random.default_rng(0)
    data = rng.standard_normal((transform.inputs, steps, _TILES)).astype(np.float32)
    weight = rng.standard_normal((transform.taps, steps, _CHANNELS)).astype(np.float32)
    exact = _direct(data.astype(np.float64), weight.astype(np.float64))
    error = np.abs(_filtered(transform, data, weight) - exact).max()
    return float(error / np.sqrt(np.mean(exact**2)))


def _direct(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``[output, tile, channel]`` of ``[input, step, tile]``."""
    outputs = len(data) - len(weight) + 1
    windows = (data[tap : tap + outputs].swapaxes(1, 2) @ w for tap, w in enumerate(weight))
    return np.asarray(sum(windows))


def _filtered(transform: Transform, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The same in the kernel's arithmetic: rounded steps, summed up one after another."""
    packed = np.tensordot(np.array(transform.weight), weight.astype(np.float64), 1)
    packed, moved = packed.astype(np.float32), along(transform.data, data)
    total = np.zeros((transform.inputs, _TILES, _CHANNELS), np.float32)
    for step in range(data.shape[1]):
        total += moved[:, step, :, None] * packed[:, step, None, :]
    return along(transform.inverse, total)
