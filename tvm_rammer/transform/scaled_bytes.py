"""Finds the integers of 8 bits and the scale that a matrix is the product of.

Importers turn a quantised model's weights into floating-point numbers. What counts here are the
numbers, not where a model has them from. Those of 16 bits are, bit for bit, what rounding makes of
integers times a scale of 16 bits. The product without the rounding is another number, nearer to
what was quantised.
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
#: Those of 4 bits before them: where scales were rounded, few parts of one are scales as well.
_FEW_BITS_FIRST = (*range(1, 16), *range(128, 15, -1))
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
    weights : ndarray of float32, int32, or floats of 16 bits, [K, N]
    in_blocks : bool
        Whether parts of a column may have scales of their own.
    """
    if _are_bytes(weights):
        return ScaledBytes(weights.astype(np.int8), None)
    # The first numbers of a column tell of most matrices that they have none.
    if weights.dtype.kind == "i" or not _has_step(weights[:_SAMPLE, weights.shape[1] // 2]):
        return None
    if not np.all(np.isfinite(weights)):
        return None
    scale = _scale(weights)
    if scale is not None:
        return ScaledBytes(np.rint(weights / scale).astype(np.int8), scale)
    return _bytes_in_blocks(weights) if in_blocks else None


def _bytes_in_blocks(weights: np.ndarray) -> ScaledBytes | None:
    """A matrix whose columns have a scale for each of their blocks.

    Blocks are the largest whose integers have the fewest bits: of bfloat16, several blocks of a few
    bits may be one of bytes as well.
    """
    rows, columns = weights.shape
    # Several columns: neighbouring blocks of one may have the same scale.
    sample = np.ascontiguousarray(weights[:, :: -(-columns // _FEW)].T)
    sizes = [size for size in BLOCKS if rows % size == 0]
    known = ((size, _bits_of_rows(sample.reshape(-1, size))) for size in sizes)
    bits = {size: found for size, found in known if found is not None}
    if not bits:
        return None
    size = min(bits, key=bits.__getitem__)
    blocks = weights.reshape(-1, size, columns)
    flat = np.ascontiguousarray(blocks.transpose(0, 2, 1)).reshape(-1, size)
    scales = _scale_of_rows(flat)
    if scales is None:
        return None
    scale = scales.reshape(-1, columns)
    values = np.rint(blocks / scale[:, None]).astype(np.int8)
    return ScaledBytes(values.reshape(rows, columns), scale)


def _bits_of_rows(values: np.ndarray) -> int | None:
    """How many bits magnitudes have, in steps of their rows; ``None`` if one row has no step."""
    scale = _scale_of_rows(values)
    if scale is None:
        return None
    return int(np.rint(np.abs(values).max(axis=1) / scale).max()).bit_length()


def _scale_of_rows(values: np.ndarray) -> np.ndarray | None:
    """For each row the first step of which its numbers are bytes, ``None`` if one has none."""
    largest = np.abs(values).max(axis=1)
    found = np.ones(len(values), np.float32)
    left = np.flatnonzero(largest)
    for byte, beside in zip(*_ways(values.dtype), strict=True):
        if not len(left):
            return found
        steps = _step_of(largest[left], byte, beside)[:, None]
        # A few of its numbers tell of most rows that they have another step.
        likely = np.flatnonzero(_are_steps(values[left, :_FEW], steps).all(axis=1))
        fits = np.zeros(len(left), bool)
        fits[likely] = _are_steps(values[left[likely]], steps[likely]).all(axis=1)
        found[left[fits]] = steps[fits, 0]
        left = left[~fits]
    return None if len(left) else found


def _ways(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that a largest magnitude may be, and how many floats its step may be from the nearest.

    Of what was rounded to 16 bits, a step is known but for its last bit.
    """
    bytes_, beside = (_FEW_BITS_FIRST, (0, -1, 1)) if _is_short(dtype) else (_BYTES, (0,))
    return np.repeat(bytes_, len(beside)), np.tile(beside, len(bytes_))


def _step_of(largest: np.ndarray, byte: Any, beside: Any) -> np.ndarray:
    """The steps of which magnitudes are a byte, in one of its ways."""
    steps: np.ndarray = largest.astype(np.float32) / np.asarray(byte, np.float32)
    if not _is_short(largest.dtype):
        return steps
    bits = steps.astype(largest.dtype).view(np.uint16) + np.asarray(beside).astype(np.uint16)
    return bits.view(largest.dtype).astype(np.float32)


def _is_short(dtype: np.dtype) -> bool:
    """Whether a type of floats has 16 bits."""
    return dtype.itemsize == np.dtype(np.float16).itemsize


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
    worth = weights.size + count * np.dtype(np.float32).itemsize < weights.nbytes
    return _scale_of_rows(np.ascontiguousarray(weights.T)) if worth else None


def _has_step(values: np.ndarray) -> bool:
    """Whether there is a step of which all values are bytes."""
    return not values.any() or any(True for _ in _steps(values))


def _steps(values: np.ndarray) -> Iterator[np.float32]:
    """The steps of which all values are bytes, and the largest magnitude itself."""
    candidates = _step_of(np.abs(values).max(keepdims=True), *_ways(values.dtype))
    # Zeros, which are bytes of every step, tell nothing.
    sample = values[values != 0][:_SAMPLE]
    likely = _are_steps(sample, candidates[:, None]).all(axis=1)
    return (step for step in candidates[likely] if _fits(values, step))


def _fits(values: np.ndarray, step: np.float32) -> bool:
    """Whether all values are bytes times a step."""
    return bool(_are_steps(values, step).all())


def _are_steps(values: np.ndarray, step: Any) -> np.ndarray:
    """Which values are bytes times a step, rounded to the type of the values."""
    with np.errstate(all="ignore"):
        bytes_ = np.rint(values / step)
        if _is_short(values.dtype):
            near = (bytes_ * step).astype(values.dtype) == values
        else:
            near = np.abs(bytes_ * step - values) <= ROUNDING * np.abs(values)
    return near & (bytes_ >= -128) & (bytes_ <= 127)


def _are_bytes(values: np.ndarray) -> bool:
    """Whether all numbers are integers of 8 bits; the first ones tell of most that they are not."""
    with np.errstate(invalid="ignore"):
        return all(
            np.all((some >= -128) & (some <= 127)) and np.array_equal(np.rint(some), some)
            for some in (values[:1], values)
        )
