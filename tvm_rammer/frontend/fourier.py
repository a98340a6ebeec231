"""Discrete Fourier transforms along the last axis, as products with the matrix of the transform.

A number of the transform is two numbers here: its real and its imaginary part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_rammer.frontend.part_of_axis import part
from tvm_rammer.frontend.sizes import as_size, end_unless_zero, remainder

#: Elements of an axis at most: the matrix has as many rows and columns.
MOST_ELEMENTS = 4096


@dataclass(frozen=True)
class Fourier:
    """A transform of so many elements, which only the run may tell.

    Attributes
    ----------
    size : int or tirx.PrimExpr
    inverse : bool
        Exponents are positive. Nothing is divided by the size.
    divisor : int or tirx.PrimExpr
        What every result is divided by.
    by_root : bool
        It is the root of it instead.
    """

    size: Any
    inverse: bool = False
    divisor: Any = 1
    by_root: bool = False

    def of_real(self, bb: relax.BlockBuilder, x: Any, kept: Any) -> tuple[Any, Any]:
        """The first results for real elements: real parts, imaginary parts."""
        return _halves(bb, self._product(bb, x, self.size, kept), kept)

    def of_complex(self, bb: relax.BlockBuilder, x: Any, y: Any, kept: Any) -> tuple[Any, Any]:
        """The first results for elements with real parts ``x`` and imaginary parts ``y``."""
        both = bb.emit(relax.op.concat([x, y], -1))
        return _halves(bb, self._product(bb, both, 2 * self.size, kept), kept)

    def to_real(self, bb: relax.BlockBuilder, x: Any, y: Any) -> Any:
        """Real results for the first half of elements, whose other half is their conjugates."""
        both = bb.emit(relax.op.concat([x, y], -1))
        half = self.size // 2 + 1
        if self._is_open:
            return self._by_run_time_matrix(bb, both, (2 * half, self.size), _entry_to_real)
        cosines, sines = self._waves(half)
        # All but the first element, and the one in the middle, stand for two.
        times = np.full((half, 1), 2.0)
        times[0] = 1
        if self.size % 2 == 0:
            times[-1] = 1
        return _multiplied(bb, both, np.concatenate([times * cosines.T, -times * sines.T]))

    @property
    def _is_open(self) -> bool:
        return any(map(tvm.ir.is_prim_expr, (self.size, self.divisor)))

    def _product(self, bb: relax.BlockBuilder, x: Any, rows: Any, kept: Any) -> Any:
        """Real parts and behind them imaginary parts, for the rows of ``x``."""
        if self._is_open:
            return self._by_run_time_matrix(bb, x, (rows, 2 * kept), _entry)
        cosines, sines = self._waves(kept)
        matrix = np.block([[cosines, sines], [-sines, cosines]])
        return _multiplied(bb, x, matrix[:rows])

    def _waves(self, count: int) -> tuple[Any, Any]:
        """Real and imaginary parts, of an element in a row for a result in a column."""
        turns = np.outer(np.arange(self.size), np.arange(count)) % self.size
        angles = 2 * np.pi / self.size * turns
        scale = self.divisor ** (-0.5 if self.by_root else -1)
        return scale * np.cos(angles), scale * np.sin(angles) * (1 if self.inverse else -1)

    def _by_run_time_matrix(
        self, bb: relax.BlockBuilder, x: Any, shape: tuple[Any, Any], entry: Any
    ) -> Any:
        """The product with a matrix of a size that the run tells, whose entries are ``entry``'s."""
        size = as_size(self.size)
        if not isinstance(self.size, int):
            end_unless_zero(bb, tirx.max(size - MOST_ELEMENTS, as_size(0)))
        given = size, as_size(self.divisor), self.by_root, str(x.ty.dtype)
        waves = bb.emit_te(_cosines, *given), bb.emit_te(_sines, *given, self.inverse)
        matrix = bb.emit_te(entry, *waves, size, *map(as_size, shape))
        return bb.emit(relax.op.matmul(x, matrix))


def _cosines(size: Any, divisor: Any, by_root: bool, dtype: str) -> te.Tensor:
    return _wave(tirx.cos, size, divisor, by_root, dtype)


def _sines(size: Any, divisor: Any, by_root: bool, dtype: str, inverse: bool) -> te.Tensor:
    return _wave(lambda x: tirx.sin(x if inverse else -x), size, divisor, by_root, dtype)


def _wave(function: Any, size: Any, divisor: Any, by_root: bool, dtype: str) -> te.Tensor:
    """One turn in so many steps; what each is divided by is in it."""
    scale = divisor.astype("float64")
    scale = tirx.sqrt(scale) if by_root else scale

    def value(k: Any) -> Any:
        angle = tirx.const(2 * math.pi, "float64") * k.astype("float64") / size.astype("float64")
        return (function(angle) / scale).astype(dtype)

    return te.compute((size,), value, "wave")


def _entry(cosines: te.Tensor, sines: te.Tensor, size: Any, rows: Any, columns: Any) -> te.Tensor:
    """Real parts, then imaginary parts, in both directions."""
    kept = tirx.floordiv(columns, as_size(2))

    def entry(row: Any, column: Any) -> Any:
        is_real, to_real = row < size, column < kept
        element = tirx.Select(is_real, row, row - size)
        result = tirx.Select(to_real, column, column - kept)
        at = remainder(element * result, size)
        mixed = tirx.Select(is_real, sines[at], -sines[at])
        return tirx.Select(tirx.EQ(is_real, to_real), cosines[at], mixed)

    return te.compute((rows, columns), entry, "transform")


def _entry_to_real(
    cosines: te.Tensor, sines: te.Tensor, size: Any, rows: Any, columns: Any
) -> te.Tensor:
    """All but the first element, and the one in the middle, stand for two."""
    half = tirx.floordiv(rows, as_size(2))

    def entry(row: Any, column: Any) -> Any:
        element = tirx.Select(row < half, row, row - half)
        at = remainder(element * column, size)
        is_single = tirx.any(tirx.EQ(element, as_size(0)), tirx.EQ(2 * element, size))
        once, twice = (tirx.const(times, str(cosines.dtype)) for times in (1, 2))
        times = tirx.Select(is_single, once, twice)
        return times * tirx.Select(row < half, cosines[at], -sines[at])

    return te.compute((rows, columns), entry, "transform_to_real")


def _multiplied(bb: relax.BlockBuilder, x: Any, matrix: Any) -> Any:
    return bb.emit(relax.op.matmul(x, relax.const(matrix, str(x.ty.dtype))))


def _halves(bb: relax.BlockBuilder, both: Any, size: Any) -> tuple[Any, Any]:
    """The two halves of the last axis."""
    axis = both.ty.ndim - 1
    if tvm.ir.is_prim_expr(size):
        first = bb.emit_te(part, both, axis, as_size(0), size, 1)
        return first, bb.emit_te(part, both, axis, size, size, 1)
    first = bb.emit(relax.op.strided_slice(both, [axis], [0], [size]))
    return first, bb.emit(relax.op.strided_slice(both, [axis], [size], [2 * size]))
