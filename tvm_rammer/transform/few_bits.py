"""Finds weights of a few bits: integers in blocks that have a scale each, and perhaps an offset.

Language models are quantised to 4 bits, with scales and zero points for 16 to 256 neighbours of a
column. As for bytes, what counts are the numbers, not where a model has them from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_rammer.transform.scaled_bytes import ROUNDING, ScaledBytes

#: How many bits integers have, besides 8.
FEW = (2, 4)
#: Blocks hold a multiple of so many: those of 2 bits fill a word.
WORD = 16


@dataclass(frozen=True)
class FewBits:
    """A matrix ``[K, N]`` as ``(values + offset) * scale``.

    Attributes
    ----------
    values : ndarray of int8, [K, N]
        From ``-2 ** (bits - 1)`` on.
    scale : ndarray, [blocks, N]
        Float32, or a type of 16 bits that has all scales.
    offset : ndarray of int8 or float32, [blocks, N], optional
    bits : int
        2, 4 or 8.
    """

    values: np.ndarray
    scale: np.ndarray
    offset: np.ndarray | None
    bits: int


def few_bits(found: ScaledBytes, short_floats: Sequence[str] = ()) -> FewBits | None:
    """Bytes and scales as integers of a few bits; ``None`` of bytes with but one block in a column.

    Parameters
    ----------
    found : ScaledBytes
    short_floats : sequence of str
        Types of 16 bits that scales may have.
    """
    rows, columns = found.values.shape
    if found.scale is None or rows % WORD:
        return None
    scale = found.scale if found.scale.ndim > 1 else np.broadcast_to(found.scale, (1, columns))
    values = found.values.astype(np.int16).reshape(len(scale), -1, columns)
    # Steps were taken as small as can be: for a largest integer of 7, an eighteenth of what it was.
    steps = np.maximum(np.gcd.reduce(values, axis=1), 1)
    values = values // steps[:, None]
    low, high = values.min(axis=1), values.max(axis=1)
    bits = next((b for b in FEW if (high - low).max() < 1 << b), 8)
    if bits == 8 and len(scale) == 1:
        return None
    half = 1 << (bits - 1)
    offset = None
    if low.min() < -half or high.max() >= half:
        # An offset is a byte; integers take what is left of one that is too large.
        offset = np.minimum(low + half, np.iinfo(np.int8).max).astype(np.int8)
        values -= offset[:, None]
    scale = (scale.astype(np.float64) * steps).astype(np.float32)
    values = values.reshape(rows, columns).astype(np.int8)
    return FewBits(values, shortened(scale, short_floats), offset, bits)


def shortened(scale: np.ndarray, short_floats: Sequence[str]) -> np.ndarray:
    """Scales in the first of some types that has them all, but for what rounding made of them."""
    for name in short_floats:
        with np.errstate(over="ignore"):
            short = scale.astype(name)
        if np.all(np.abs(short.astype(np.float32) - scale) <= ROUNDING * np.abs(scale)):
            return short
    return scale
