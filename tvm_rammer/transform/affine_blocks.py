"""Finds weights that are integers of 8 bits or fewer, scaled and shifted, in blocks of a column.

Quantisers that use all of their steps for an uneven range leave a zero point that is no integer, or
integers whose difference from it has no 8 bits. As for bytes, what counts are the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_rammer.transform.few_bits import FEW, WORD, FewBits, shortened
from tvm_rammer.transform.scaled_bytes import BLOCKS, ROUNDING

#: Steps from the smallest number of a block to the largest: for few there is a multiple.
_STEPS = np.arange(255, 0, -1, dtype=np.float32)
#: How far, in steps, a number may be from the integer that it is; else rounding tells nothing.
_NEAR = 0.02
#: So many numbers of a block tell of most that they have other steps.
_SAMPLE = 4
#: Weights that are looked at at once.
_PART = 1 << 20


def affine_blocks(weights: np.ndarray, short_floats: Sequence[str] = ()) -> FewBits | None:
    """The integers, scales and offsets of a matrix, ``None`` if it has none.

    Parameters
    ----------
    weights : ndarray of float32, [K, N]
    short_floats : sequence of str
        Types of 16 bits that scales may have.
    """
    rows, columns = weights.shape
    if weights.dtype != np.float32 or rows % WORD:
        return None
    sample = np.ascontiguousarray(weights[:, columns // 2])
    # What has steps as part of a large block has them as a small one, which is soon told.
    if not _have_steps(sample[:WORD]):
        return None
    sizes = (size for size in (rows, *BLOCKS) if rows % size == 0)
    size = next((n for n in sizes if _integers(sample.reshape(-1, n)) is not None), 0)
    if not size:
        return None
    values = np.empty(weights.shape, np.uint8)
    step = max(1, _PART // rows)
    parts = []
    for start in range(0, columns, step):
        blocks = weights[:, start : start + step].reshape(rows // size, size, -1)
        flat = np.ascontiguousarray(blocks.transpose(0, 2, 1)).reshape(-1, size)
        integers = _integers(flat)
        if integers is None:
            return None
        found = integers.reshape(len(blocks), -1, size).transpose(0, 2, 1)
        values[:, start : start + step] = found.reshape(rows, -1)
        parts.append([each.reshape(len(blocks), -1) for each in _line(flat, integers)])
    scale, offset = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    bits = next((b for b in FEW if values.max() < 1 << b), 8)
    half = 1 << (bits - 1)
    centred = (values ^ half).view(np.int8) if bits == 8 else values.astype(np.int8) - half
    return FewBits(centred, shortened(scale, short_floats), offset + half, bits)


def _have_steps(numbers: np.ndarray) -> bool:
    """Whether a few numbers are all steps from the smallest of them: any count of steps at once."""
    low, high = numbers.min(keepdims=True), numbers.max(keepdims=True)
    if not np.isfinite(high - low):
        return False
    if high == low:
        return True
    step = ((high - low) / _STEPS)[:, None]
    near = np.minimum(_error(low, high) / step, np.float32(_NEAR))
    return bool(_fits(numbers[None], low, step, near).any())


def _error(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How far rounding may have moved numbers between two."""
    return 4 * ROUNDING * np.maximum(np.abs(low), np.abs(high))


def _integers(blocks: np.ndarray) -> np.ndarray | None:
    """How many steps each number is from the smallest of its row, ``None`` if one row has none."""
    low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    if not np.isfinite(high - low).all():
        return None
    error = _error(low, high)
    found = np.zeros(blocks.shape, np.uint8)
    left = np.flatnonzero(high > low)
    for count in _STEPS:
        if not len(left):
            return found
        step = (high[left] - low[left]) / count
        near = np.minimum(error[left] / step, np.float32(_NEAR))
        likely = np.flatnonzero(_fits(blocks[left, :_SAMPLE], low[left], step, near))
        rows = left[likely]
        fits = np.zeros(len(left), bool)
        fits[likely] = _fits(blocks[rows], low[rows], step[likely], near[likely])
        rows = left[fits]
        steps = np.rint((blocks[rows] - low[rows]) / step[fits]).astype(np.uint8)
        found[rows] = steps // np.gcd.reduce(steps, axis=1, keepdims=True)
        left = left[~fits]
    return None if len(left) else found


def _fits(blocks: np.ndarray, low: np.ndarray, step: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Which rows are all integers from ``low`` on by a step, but for ``near`` of it."""
    with np.errstate(all="ignore"):
        steps = (blocks - low) / step
        fits: np.ndarray = (np.abs(steps - np.rint(steps)) <= near).all(axis=1)
    return fits


def _line(blocks: np.ndarray, integers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset of each row: ``(integers + offset) * scale``, nearest to its numbers."""
    real, steps = blocks.astype(np.float64), integers.astype(np.float64)
    middle, centre = real.mean(axis=1, keepdims=True), steps.mean(axis=1, keepdims=True)
    steps -= centre
    spread = np.square(steps).sum(axis=1)
    flat = spread == 0
    scale = ((real - middle) * steps).sum(axis=1) / np.where(flat, 1, spread)
    # All numbers of a row may be the same.
    scale = np.where(flat, np.where(middle[:, 0] == 0, 1, middle[:, 0]), scale)
    offset = middle[:, 0] / scale - centre[:, 0]
    return scale.astype(np.float32), offset.astype(np.float32)
