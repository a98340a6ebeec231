"""What an operator must compute: inputs to try it on, and whether two answers agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_rammer.tensors import random_values

#: Errors up to this, relative to the largest number, are rounding: sums may take any order.
_ROUNDING, _ROUNDING_OF_HALF = 1e-3, 1e-2
#: Of Winograd's tolerance, which is one of the mean error.
_WINOGRAD = 20.0
#: So many random numbers are repeated in larger tensors: theirs is no length of anything.
_PERIOD = 1_000_003


def example(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """An input: normal numbers, small integers, fair coins; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    count = (min(_PERIOD, int(np.prod(shape, dtype=np.int64))),)
    if dtype == "bfloat16":  # NumPy has none: it is the upper half of a float32
        halves = random_values(rng, count, np.float32).view(np.uint32) >> 16
        return np.resize(halves.astype(np.uint16), shape)
    return np.resize(random_values(rng, count, dtype, below=4), shape)


def disagreement(
    got: Sequence[np.ndarray], want: Sequence[np.ndarray], winograd_tolerance: float
) -> str:
    """How answers differ by more than rounding; empty if they do not.

    What is not finite in ``want`` may be anything.
    """
    for number, (left, right) in enumerate(zip(got, want, strict=True)):
        rounding = _ROUNDING_OF_HALF if right.dtype == np.float16 else _ROUNDING
        tolerance = max(rounding, _WINOGRAD * winograd_tolerance)
        left, right = _readable(left), _readable(right)
        finite = np.isfinite(right)
        scale = float(np.abs(right[finite]).max(initial=0.0))
        allowed = tolerance * scale if right.dtype.kind == "f" else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            wrong = finite & ~(np.abs(left - right) <= allowed)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            return (
                f"result {number} is {left[place]:.6g} at {list(place)} and should be "
                f"{right[place]:.6g} ({int(wrong.sum()):,} of {wrong.size:,} are wrong)"
            )
    return ""


def _readable(array: np.ndarray) -> np.ndarray:
    """Numbers that can be subtracted."""
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    return array.astype(np.int64)
