"""Assertions that two answers agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_rammer.testing.reference import relative_error


def assert_close(got: np.ndarray, want: Any, tolerance: float = 1e-5) -> None:
    """Assert the same shape, and numbers that are equal up to rounding.

    Integers and booleans must be equal. A sum of K products whose signs differ is off by about
    ``sqrt(K)`` units of rounding of its *terms*, however small it is itself; so what is allowed is
    relative to the largest finite value. The default is 84 of float32's units: K up to a few
    thousand, or as many roundings one after the other as in a short network.
    """
    want = np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want)
        return
    finite = want[np.isfinite(want)]
    scale = max(1.0, float(np.abs(finite).max(initial=0.0)))
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=0, atol=tolerance * scale
    )


def assert_outputs_close(
    got: Sequence[np.ndarray],
    want: Sequence[np.ndarray],
    tolerance: float = 1e-4,
    names: Sequence[str] | None = None,
) -> None:
    """Assert that outputs agree; the message names the output, the error and the worst element."""
    assert len(got) == len(want), f"{len(got)} outputs, expected {len(want)}"
    for index, (left, right) in enumerate(zip(got, want, strict=True)):
        name = names[index] if names else f"output {index}"
        assert left.shape == right.shape, f"{name}: shape {left.shape}, expected {right.shape}"
        error = relative_error(left, right)
        if error > tolerance:
            raise AssertionError(
                f"{name}: relative error {error:.3g} > {tolerance:.3g}; {_worst(left, right)}"
            )


def _worst(got: np.ndarray, want: np.ndarray) -> str:
    distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
    distance = np.where(np.isnan(distance), np.inf, distance)
    at = np.unravel_index(int(distance.argmax()), distance.shape)
    place = ", ".join(str(int(i)) for i in at)
    return f"worst at [{place}]: got {got[at]:.6g}, expected {want[at]:.6g}"
