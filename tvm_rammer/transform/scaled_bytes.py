"""Finds the integers of 8 bits and the scale that a matrix is the product of.

Importers turn a quantised model's weights into floating-point numbers. What counts here are the
numbers, not where a model has them from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Relative errors of what was rounded to float32 when it was scaled, perhaps twice.
ROUNDING = 3e-7
#: So many numbers tell of most columns that they are no bytes times a scale, and so many of most
#: that they are none times a certain one.
_SAMPLE, _FEW = 16, 4
#: Magnitudes of bytes, the largest first.
_BYTES = range(128, 0, -1)
#: How many neighbours of a column have a scale in common where it has several.
BLOCKS = (256, 128, 64, 32, 16)


@dataclass(frozen=True)
class ScaledBytes:
    """A matrix ``[K, N]`` as ``values * scale``.

    Attributes
    ----------
    values : ndarray of int8
    scale : ndarray, optional
        One number, one for each column, or ``[blocks, N]`` for each block of equal size of every
        column; ``None`` where the values are the matrix.
    """

    values: np.ndarray
    scale: np.ndarray | None


def scaled_bytes(weights: np.ndarray, *, in_blocks: bool = False) -> ScaledBytes | None:
    """The bytes and the scale of a matrix, ``None`` if it has none or they take as much memory.

    Parameters
    ----------
    weights : ndarray of float32 or int32, [K, N]
    in_blocks : bool
        Whether parts of a column may have scales of their own.
    """
    if _are_bytes(weights):
        return ScaledBytes(weights.astype(np.int8), None)
    # The first numbers of a column tell of most matrices that they have none.
    if weights.dtype.kind == "i" or _step(weights[:_SAMPLE, weights.shape[1] // 2]) is None:
        return None
    if not np.all(np.isfinite(weights)):
        return None
    scale = _scale(weights)
    if scale is not None:
        return ScaledBytes(np.rint(weights / scale).astype(np.int8), scale)
    return _bytes_in_blocks(weights) if in_blocks else None


def _bytes_in_blocks(weights: np.ndarray) -> ScaledBytes | None:
    """A matrix whose columns have a scale for each of their blocks, the largest that there are."""
    rows, columns = weights.shape
    sample = np.ascontiguousarray(weights[:, columns // 2])
    sizes = [size for size in BLOCKS if rows % size == 0]
    size = next((n for n in sizes if _scale_of_rows(sample.reshape(-1, n)) is not None), 0)
    if not size:
        return None
    blocks = weights.reshape(-1, size, columns)
    flat = np.ascontiguousarray(blocks.transpose(0, 2, 1)).reshape(-1, size)
    found = _scale_of_rows(flat)
    if found is None:
        return None
    scale = found.reshape(-1, columns)
    values = np.rint(blocks / scale[:, None]).astype(np.int8)
    return ScaledBytes(values.reshape(rows, columns), scale)


def _scale_of_rows(values: np.ndarray) -> np.ndarray | None:
    """For each row the smallest step of which its numbers are bytes, ``None`` if one has none."""
    largest = np.abs(values).max(axis=1)
    found = np.ones(len(values), np.float32)
    left = np.flatnonzero(largest)
    for byte in _BYTES:
        steps = (largest[left] / np.float32(byte))[:, None]
        # A few of its numbers tell of most rows that they have another step.
        likely = np.flatnonzero(_are_steps(values[left, :_FEW], steps).all(axis=1))
        fits = np.zeros(len(left), bool)
        fits[likely] = _are_steps(values[left[likely]], steps[likely]).all(axis=1)
        found[left[fits]] = steps[fits, 0]
        left = left[~fits]
        if not len(left):
            return found
    return None


def _scale(weights: np.ndarray) -> np.ndarray | None:
    """One scale if there is one, else one for each column."""
    largest = np.unravel_index(np.abs(weights).argmax(), weights.shape)[1]
    steps = list(_steps(weights[:, largest]))
    if not steps:
        return None
    for step in steps:
        if _fits(weights[:1], step) and _fits(weights, step):
            return np.array([step])
    count = weights.shape[1]
    worth = 2 * (weights.size + count * weights.itemsize) <= weights.nbytes
    return _scale_of_columns(weights) if worth else None


def _scale_of_columns(weights: np.ndarray) -> np.ndarray | None:
    found = np.ones(weights.shape[1], np.float32)
    for number, column in enumerate(np.ascontiguousarray(weights.T)):
        step = _step(column)
        if step is None:
            return None
        found[number] = step
    return found


def _step(values: np.ndarray) -> np.float32 | None:
    """The smallest step of which all values are bytes, ``None`` if there is none."""
    return next(_steps(values), None) if values.any() else np.float32(1)


def _steps(values: np.ndarray) -> Iterator[np.float32]:
    """The steps of which all values are bytes, and the largest magnitude itself, smallest first."""
    largest = np.abs(values).max()
    candidates = (largest / np.array(_BYTES, values.dtype)).astype(np.float32)
    # Zeros, which are bytes of every step, tell nothing.
    sample = values[values != 0][:_SAMPLE]
    likely = _are_steps(sample, candidates[:, None]).all(axis=1)
    return (step for step in candidates[likely] if _fits(values, step))


def _fits(values: np.ndarray, step: np.float32) -> bool:
    """Whether all values are bytes times a step."""
    return bool(_are_steps(values, step).all())


def _are_steps(values: np.ndarray, step: Any) -> np.ndarray:
    """Which values are bytes times a step."""
    with np.errstate(all="ignore"):
        bytes_ = np.rint(values / step)
        near = np.abs(bytes_ * step - values) <= ROUNDING * np.abs(values)
    return near & (bytes_ >= -128) & (bytes_ <= 127)


def _are_bytes(values: np.ndarray) -> bool:
    """Whether all numbers are integers of 8 bits; the first ones tell of most that they are not."""
    return all(
        np.all((some >= -128) & (some <= 127)) and np.array_equal(np.rint(some), some)
        for some in (values[:1], values)
    )
