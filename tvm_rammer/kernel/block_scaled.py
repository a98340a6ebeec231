"""Products with weights of a few bits and a scale for each block of a column.

What makes such a PrimFunc and what takes it apart again stand together: both know how integers lie
in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.contraction import Axis, Contraction, find_contraction, is_cheap, load_of
from tvm_rammer.rprogram import dtype_bytes

_BITS_OF_BYTE, _BITS_OF_WORD = 8, 32


def packed_integers(values: np.ndarray, bits: int) -> np.ndarray:
    """Integers of a few bits as words, neighbours of a column in one, the first in its lowest bits.

    Parameters
    ----------
    values : ndarray of int8, [K, N]
        From ``-2 ** (bits - 1)`` on, and as many.
    bits : int
        2, 4 or 8; words have 32 bits, and K must fill them. Bytes stay bytes.

    Returns
    -------
    ndarray of int32, [K * bits / 32, N], or of int8, [K, N]
    """
    if bits == _BITS_OF_BYTE:
        return values
    count = _BITS_OF_WORD // bits
    parts = values.reshape(-1, count, values.shape[-1]).astype(np.uint32) & ((1 << bits) - 1)
    places = np.arange(0, _BITS_OF_WORD, bits, dtype=np.uint32)[:, None]
    words: np.ndarray = np.bitwise_or.reduce(parts << places, axis=1)
    return words.view(np.int32)


def block_scaled_product(
    data: te.Tensor,
    words: te.Tensor,
    scale: te.Tensor,
    offset: te.Tensor | None = None,
    *,
    bits: int,
) -> te.Tensor:
    """``data @ ((integers + offset) * scale)``, each block of a column with its own numbers.

    Parameters
    ----------
    data : te.Tensor
        ``[rows..., K]``, float32.
    words : te.Tensor
        Of :func:`packed_integers`.
    scale : te.Tensor
        ``[blocks, N]``, of any type of float.
    offset : te.Tensor, optional
        ``[blocks, N]``, of int8 or a type of float.
    bits : int
    """
    count = _count(bits)
    size = int(words.shape[0]) * count // int(scale.shape[0])
    word = te.reduce_axis((0, words.shape[0]), "word")
    part = te.reduce_axis((0, count), "part")

    def element(*places: Any) -> Any:
        *rows, column = places
        block = word * count // size
        integer = _integer(words[word, column], part, bits).astype(data.dtype)
        if offset is not None:
            integer = integer + offset[block, column].astype(data.dtype)
        weight = integer * scale[block, column].astype(data.dtype)
        return te.sum(data[(*rows, word * count + part)] * weight, axis=[word, part])

    return te.compute((*data.shape[:-1], words.shape[1]), element, "matmul")


def _count(bits: int) -> int:
    """How many integers of so many bits are an element of the words."""
    return 1 if bits == _BITS_OF_BYTE else _BITS_OF_WORD // bits


def _integer(word: Any, part: Any, bits: int) -> Any:
    """One of the integers of a word."""
    if bits == _BITS_OF_BYTE:
        return word
    top = _BITS_OF_WORD - bits
    return (word << (top - part * bits).astype("int32")) >> tirx.const(top, "int32")


@dataclass(frozen=True)
class BlockScaled:
    """A PrimFunc of :func:`block_scaled_product`, and what is fused behind it, taken apart.

    Attributes
    ----------
    contraction : Contraction
        Its data and its weights are the factors.
    words, scale : TensorLoad
        What the weights are made of.
    offset : TensorLoad, optional
    column : Axis
        Of the weights; the other spatial axes are rows.
    bits : int
    blocks : int
        Of a column.
    """

    contraction: Contraction
    words: TensorLoad
    scale: TensorLoad
    offset: TensorLoad | None
    column: Axis
    bits: int
    blocks: int

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> BlockScaled | None:
        """``None`` for any other PrimFunc."""
        contraction = find_contraction(func, _is_factor)
        if contraction is None or not isinstance(contraction.factors[1], tirx.Mul):
            return None
        weights, count = contraction.factors[1], contraction.reduced[-1].extent
        integer, offset = weights.a, None
        if isinstance(integer, tirx.Add):
            integer, offset = integer.a, load_of(integer.b)
        (words,), scale = loads(integer), load_of(weights.b)
        used = variables(words.indices)
        (column,) = (axis for axis in contraction.spatial if axis.var in used)
        bits = _BITS_OF_BYTE if count == 1 else _BITS_OF_WORD // count
        blocks = int(scale.source.shape[0])
        return cls(contraction, words, scale, offset, column, bits, blocks)

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The axes along which weights are the same."""
        return tuple(axis for axis in self.contraction.spatial if axis is not self.column)

    @property
    def num_rows(self) -> int:
        """How many rows there are along all of them."""
        return prod(axis.extent for axis in self.rows)

    @property
    def count(self) -> int:
        """Integers of an element of the words."""
        return _count(self.bits)

    @property
    def size(self) -> int:
        """Integers of a block."""
        word, part = self.contraction.reduced
        return word.extent * part.extent // self.blocks

    @property
    def nbytes(self) -> float:
        """Of a weight in memory, its part of what its block has in common included."""
        parts = [load for load in (self.scale, self.offset) if load is not None]
        shared = sum(dtype_bytes(str(load.source.dtype)) for load in parts)
        return self.bits / _BITS_OF_BYTE + shared / self.size

    def integer(self, word: Any, part: Any) -> Any:
        """One of the integers of an element of the words, as a float."""
        return _integer(word, part, self.bits).astype(self.contraction.dtype)


def _is_factor(factor: Any) -> bool:
    """Data, or integers of words times a scale."""
    if not isinstance(factor, tirx.Mul):
        return is_cheap(factor)
    integer, scale = factor.a, factor.b
    if isinstance(integer, tirx.Add) and is_cheap(integer.b):
        integer = integer.a
    if not isinstance(integer, tirx.Cast) or not is_cheap(scale):
        return False
    inner = integer.value
    shifted = isinstance(inner, tirx.RShift) and isinstance(inner.a, tirx.LShift)
    return is_cheap(inner.a.a if shifted else inner)
