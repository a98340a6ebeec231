"""Finds the integers of 8 bits and the scale that a matrix is the product of.

Importers turn a quantised model's weights into floating-point numbers. What counts here are the
numbers, not where a model has them from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Relative errors of what was rounded to float32 when it was scaled, perhaps twice.
_ROUNDING = 3e-7
#: So many rows tell of most columns that they are no bytes times a scale.
_SAMPLE = 64


@dataclass(frozen=True)
class ScaledBytes:
    """A matrix ``[K, N]`` as ``values * scale``.

    Attributes
    ----------
    values : ndarray of int8
    scale : ndarray, optional
        One number, or one for each column; ``None`` where the values are the matrix.
    """

    values: np.ndarray
    scale: np.ndarray | None


def scaled_bytes(weights: np.ndarray) -> ScaledBytes | None:
    """The bytes and the scale of a matrix, ``None`` if it has none or they take as much memory.

    Parameters
    ----------
    weights : ndarray of float32 or int32, [K, N]
    """
    if _are_bytes(weights):
        return ScaledBytes(weights.astype(np.int8), None)
    if weights.dtype.kind == "i" or not np.all(np.isfinite(weights)):
        return None
    scale = _scale(weights)
    if scale is None:
        return None
    return ScaledBytes(np.rint(weights / scale).astype(np.int8), scale)


def _scale(weights: np.ndarray) -> np.ndarray | None:
    """One scale if there is one, else one for each column."""
    largest = np.unravel_index(np.abs(weights).argmax(), weights.shape)[1]
    column = weights[:, largest]
    steps = [step for step in _candidates(column.max(), column.min()) if _fits(column, step)]
    if not steps:
        return None
    for step in steps:
        if _fits(weights[:_SAMPLE], step) and _fits(weights, step):
            return np.array([step])
    count = weights.shape[1]
    worth = 2 * (weights.size + count * weights.itemsize) <= weights.nbytes
    return _scale_of_columns(weights) if worth else None


def _scale_of_columns(weights: np.ndarray) -> np.ndarray | None:
    # Rows of zeros, which are the same in every scale, tell nothing.
    rows = np.argsort(-np.abs(weights).max(axis=1), kind="stable")[:_SAMPLE]
    found = np.ones(weights.shape[1], np.float32)
    for number, column in enumerate(np.ascontiguousarray(weights.T)):
        if not column.any():
            continue
        sample = column[rows]
        steps = _candidates(column.max(), column.min())
        step = next((s for s in steps if _fits(sample, s) and _fits(column, s)), None)
        if step is None:
            return None
        found[number] = step
    return found


def _candidates(most: np.float32, least: np.float32) -> list[np.float32]:
    """The steps of which the largest magnitude is a byte, the smallest steps first."""
    largest = max(most, -least)
    return [np.float32(largest / byte) for byte in range(128, 0, -1)]


def _fits(values: np.ndarray, step: np.float32) -> bool:
    """Whether all values are bytes times a step."""
    with np.errstate(all="ignore"):
        bytes_ = np.rint(values / step)
        near = np.abs(bytes_ * step - values) <= _ROUNDING * np.abs(values)
    return bool(np.all(near & (bytes_ >= -128) & (bytes_ <= 127)))


def _are_bytes(values: np.ndarray) -> bool:
    """Whether all numbers are integers of 8 bits; the first ones tell of most that they are not."""
    return all(
        np.all((some >= -128) & (some <= 127)) and np.array_equal(np.rint(some), some)
        for some in (values[:1], values)
    )
