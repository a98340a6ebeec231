"""A confidence interval of a median that assumes nothing about the noise."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median

_CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median of a sample, and between which of its values that of the population lies.

    The limits are order statistics: with ``n`` values the ``k`` smallest are all below the true
    median with probability ``sum(comb(n, i) for i < k) / 2**n``. Fewer than six values are not
    enough for 95 %: then the limits are the smallest and the largest.

    >>> median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 7.0, 8.0])
    (4.5, 1.0, 8.0)
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, tail = 0, comb(count, 0) / 2**count
    while tail <= (1 - _CONFIDENCE) / 2:
        outside += 1
        tail += comb(count, outside) / 2**count
    first = max(0, outside - 1)
    return median(ordered), ordered[first], ordered[count - 1 - first]
