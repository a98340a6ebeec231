from __future__ import annotations

from itertools import product
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule.median_interval import median_interval


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=60))
def test_the_median_lies_between_its_limits(values):
    middle, low, high = median_interval(values)
    assert middle == median(values)
    assert low in values and high in values
    assert low <= middle <= high


def test_few_values_are_between_the_smallest_and_the_largest():
    assert median_interval([2.0, 1.0, 3.0]) == (2.0, 1.0, 3.0)


@pytest.mark.parametrize("count", [6, 9, 12])
def test_the_limits_hold_the_true_median_in_95_of_100_samples(count):
    """Every value of a sample is above (1) or below (-1) the true median, 0, equally often."""
    missed = 0
    for signs in product((-1.0, 1.0), repeat=count):
        _, low, high = median_interval(signs)
        missed += not low <= 0 <= high
    assert missed <= 0.05 * 2**count
