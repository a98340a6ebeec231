"""Floats that a model computes of sizes: a size by a number, which is rounded to a size again.

Half of a height, rounded up, is computed in floats by who exports ``math.ceil(height / 2)``. Sizes
are far below 2**24, so that float32 rounds such a quotient to a whole number only where it is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tvm import tirx

from tvm_rammer.frontend.sizes import as_number, as_size

#: Of constants with more digits behind the point nothing is followed.
_FINEST = 1 << 20


@dataclass(frozen=True)
class SizeRatio:
    """A size, or a formula, by a number; either may be 1."""

    numerator: Any
    denominator: int = 1

    @property
    def is_known(self) -> bool:
        """Whether it is a number."""
        return isinstance(self.numerator, int)


def ratio_of(value: float) -> SizeRatio | None:
    """A constant; ``None`` for one that is no short fraction."""
    try:
        exact = Fraction(value)
    except (OverflowError, ValueError):
        return None
    if exact.denominator > _FINEST or abs(exact.numerator) > _FINEST:
        return None
    return SizeRatio(exact.numerator, exact.denominator)


def add(one: SizeRatio, other: SizeRatio) -> SizeRatio:
    """Their sum."""
    left, right, below = _together(one, other)
    return SizeRatio(left + right, below)


def subtract(one: SizeRatio, other: SizeRatio) -> SizeRatio:
    """What is left."""
    left, right, below = _together(one, other)
    return SizeRatio(left - right, below)


def multiply(one: SizeRatio, other: SizeRatio) -> SizeRatio:
    """Their product."""
    product = as_size(one.numerator) * as_size(other.numerator)
    return SizeRatio(as_number(product), one.denominator * other.denominator)


def divide(one: SizeRatio, other: SizeRatio) -> SizeRatio | None:
    """Their quotient; ``None`` unless the divisor is a number, and not 0."""
    if not other.is_known or other.numerator == 0:
        return None
    sign = 1 if other.numerator > 0 else -1
    return multiply(one, SizeRatio(sign * other.denominator, abs(other.numerator)))


def least(one: SizeRatio, other: SizeRatio) -> SizeRatio:
    """The smaller one."""
    left, right, below = _together(one, other)
    return SizeRatio(tirx.min(left, right), below)


def most(one: SizeRatio, other: SizeRatio) -> SizeRatio:
    """The larger one."""
    left, right, below = _together(one, other)
    return SizeRatio(tirx.max(left, right), below)


def floor(ratio: SizeRatio) -> SizeRatio:
    """Rounded down."""
    below = as_size(ratio.denominator)
    return SizeRatio(tirx.floordiv(as_size(ratio.numerator), below))


def ceil(ratio: SizeRatio) -> SizeRatio:
    """Rounded up."""
    more = as_size(ratio.numerator) + (ratio.denominator - 1)
    return floor(SizeRatio(more, ratio.denominator))


def _together(one: SizeRatio, other: SizeRatio) -> tuple[Any, Any, int]:
    """Their numerators over one denominator."""
    if one.denominator == other.denominator:
        return as_size(one.numerator), as_size(other.numerator), one.denominator
    left = as_size(one.numerator) * other.denominator
    right = as_size(other.numerator) * one.denominator
    return left, right, one.denominator * other.denominator
