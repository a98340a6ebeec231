"""Discrete Fourier transforms along the last axis, as products with the matrix of the transform.

A number of the transform is two numbers here: its real and its imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

#: Elements of an axis at most: the matrix has as many rows and columns.
MOST_ELEMENTS = 4096


@dataclass(frozen=True)
class Fourier:
    """A transform of so many elements.

    Attributes
    ----------
    size : int
    inverse : bool
        Exponents are positive. Nothing is divided by the size.
    scale : float
        What every result is multiplied with.
    """

    size: int
    inverse: bool = False
    scale: float = 1.0

    def of_real(self, emit: Callable[[Any], Any], x: Any, kept: int) -> tuple[Any, Any]:
        """The first results for real elements: real parts, imaginary parts."""
        cosines, sines = self._waves(kept)
        both = self._product(emit, x, np.concatenate([cosines, sines], 1))
        return _halves(emit, both, kept)

    def of_complex(self, emit: Callable[[Any], Any], x: Any, y: Any, kept: int) -> tuple[Any, Any]:
        """The first results for elements with real parts ``x`` and imaginary parts ``y``."""
        cosines, sines = self._waves(kept)
        matrix = np.block([[cosines, sines], [-sines, cosines]])
        both = self._product(emit, emit(relax.op.concat([x, y], -1)), matrix)
        return _halves(emit, both, kept)

    def to_real(self, emit: Callable[[Any], Any], x: Any, y: Any) -> Any:
        """Real results for the first half of elements, whose other half is their conjugates."""
        half = self.size // 2 + 1
        cosines, sines = self._waves(half)
        # All but the first element, and the one in the middle, stand for two.
        times = np.full((half, 1), 2.0)
        times[0] = 1
        if self.size % 2 == 0:
            times[-1] = 1
        matrix = np.concatenate([times * cosines.T, -times * sines.T])
        return self._product(emit, emit(relax.op.concat([x, y], -1)), matrix)

    def _waves(self, count: int) -> tuple[Any, Any]:
        """Real and imaginary parts, of an element in a row for a result in a column."""
        turns = np.outer(np.arange(self.size), np.arange(count)) % self.size
        angles = 2 * np.pi / self.size * turns
        return np.cos(angles), np.sin(angles) * (1 if self.inverse else -1)

    def _product(self, emit: Callable[[Any], Any], x: Any, matrix: Any) -> Any:
        return emit(relax.op.matmul(x, relax.const(self.scale * matrix, str(x.ty.dtype))))


def _halves(emit: Callable[[Any], Any], both: Any, size: int) -> tuple[Any, Any]:
    """The two halves of the last axis."""
    axis = both.ty.ndim - 1
    first = emit(relax.op.strided_slice(both, [axis], [0], [size]))
    return first, emit(relax.op.strided_slice(both, [axis], [size], [2 * size]))
