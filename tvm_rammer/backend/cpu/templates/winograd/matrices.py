"""The matrices of Winograd's minimal filtering, by Cook and Toom's construction.

In F(m x m, 3 x 3), for filters of three taps along both axes, a tile ``d`` of ``(m + 2) x (m + 2)``
inputs and a filter ``g`` give ``m x m`` outputs ``A^T [(G g G^T) * (B^T d B)] A`` with
``(m + 2)^2`` multiplications in place of ``9 m^2``: two polynomials are multiplied by their values
at ``m + 1`` points and at infinity. The points decide how much rounding errors grow: with 0, +-3/4
and +-3/2 the error of F(4 x 4, 3 x 3) is a quarter of that with the usual 0, +-1 and +-2, and all
of ``A`` and ``B`` is still exact in binary.

Rows of a point and its negative differ in the signs of every other entry, so ``B^T`` and ``A^T``
are products of two sparse factors that take half of the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce

import numpy as np

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Transform:
    """F(outputs, taps) along an axis; F(outputs x outputs, taps x taps) along both.

    Attributes
    ----------
    outputs, taps : int
        Outputs of a tile and taps of the filter along each side.
    data, inverse : tuple of Matrix
        Factors of ``B^T`` and ``A^T``, in the order in which they are applied.
    weight : Matrix
        ``G``.
    """

    outputs: int
    taps: int
    data: tuple[Matrix, ...]
    weight: Matrix
    inverse: tuple[Matrix, ...]

    @property
    def inputs(self) -> int:
        """Inputs of a tile along each side."""
        return self.outputs + self.taps - 1

    @property
    def products(self) -> int:
        """Multiplications of a tile for each pair of channels."""
        return self.inputs**2

    def transform_weight(self, weight: np.ndarray) -> np.ndarray:
        """``G g G^T`` of every filter, in double precision: ``[out, 3, 3, in]`` to
        ``[(m + 2)^2, in, out]``."""
        outer, _, _, inner = weight.shape
        taps = weight.transpose(1, 2, 3, 0).astype(np.float64, order="C")
        moved = self._both_sides @ taps.reshape(self.taps**2, -1)
        return moved.reshape(self.products, inner, outer)

    @cached_property
    def _both_sides(self) -> np.ndarray:
        return np.kron(self.weight, self.weight)


def product(factors: Sequence[Matrix]) -> np.ndarray:
    """The matrix that applies ``factors`` one after another."""
    return reduce(lambda done, factor: np.array(factor) @ done, factors[1:], np.array(factors[0]))


def along(factors: Sequence[Matrix], array: np.ndarray) -> np.ndarray:
    """Apply the factors along the first axis, one after another, in float32."""
    for factor in factors:
        array = np.tensordot(np.array(factor, np.float32), array, 1)
    return array


def cook_toom(outputs: int, positive: Sequence[Fraction], taps: int = 3) -> Transform:
    """The transform with the points 0, infinity, and those given with both signs.

    Parameters
    ----------
    outputs : int
        ``m``.
    positive : sequence of Fraction
        ``(m + taps - 3) / 2`` distinct points above 0.
    taps : int
    """
    points = [Fraction(0), *(sign * point for point in positive for sign in (1, -1))]
    last = len(points)
    weight = []
    for point in points:
        scale = _value([other for other in points if other != point], point)
        weight.append([point**power / scale for power in range(taps)])
    weight.append([Fraction(power == taps - 1) for power in range(taps)])

    zero = Fraction(0)
    spread = [_polynomial(points[1:], last + 1)]
    butterfly = [[Fraction(row == column) for column in range(last + 1)] for row in range(last + 1)]
    sums = [list(row) for row in butterfly]
    for pair, point in enumerate(positive):
        first = 2 * pair + 1
        others = [other for other in points[1:] if abs(other) != point]
        even, odd = ([zero] * shift + _polynomial(others, last + 1 - shift) for shift in (2, 1))
        spread += [even, odd]
        for matrix, size in ((butterfly, point), (sums, Fraction(1))):
            matrix[first][first : first + 2] = [Fraction(1), size]
            matrix[first + 1][first : first + 2] = [Fraction(1), -size]
    spread.append(_polynomial(points, last + 1))

    inverse = []
    for power in range(outputs):
        row = [Fraction(power == 0)]
        for point in positive:
            row += [point**power, zero] if power % 2 == 0 else [zero, point**power]
        inverse.append([*row, Fraction(power == outputs - 1)])
    return Transform(
        outputs,
        taps,
        (_floats(spread), _floats(butterfly)),
        _floats(weight),
        (_floats(sums), _floats(inverse)),
    )


def _value(roots: Sequence[Fraction], point: Fraction) -> Fraction:
    """The monic polynomial with these roots, at a point."""
    return reduce(lambda value, root: value * (point - root), roots, Fraction(1))


def _polynomial(roots: Sequence[Fraction], length: int) -> list[Fraction]:
    """Coefficients of the monic polynomial with these roots, lowest first."""
    found = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *found], [root * value for value in found] + [Fraction(0)]
        found = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return found + [Fraction(0)] * (length - len(found))


def _floats(matrix: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(map(float, row)) for row in matrix)


#: F(2 x 2, 3 x 3): 2.25 times fewer multiplications.
TWO = cook_toom(2, [Fraction(1)])
#: F(4 x 4, 3 x 3): 4 times fewer multiplications, and a larger rounding error.
FOUR = cook_toom(4, [Fraction(3, 4), Fraction(3, 2)])
#: F(6, 3) and F(4, 5) along one axis: 2.25 and 2.5 times fewer multiplications.
LINES = tuple(
    cook_toom(outputs, [Fraction(1, 2), Fraction(1), Fraction(2)], taps)
    for outputs, taps in ((6, 3), (4, 5))
)
