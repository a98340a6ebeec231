"""The transforms are exact, and their error in float32 is what is said of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.backend.cpu.templates.winograd.accuracy import winograd_error
from tvm_rammer.backend.cpu.templates.winograd.matrices import (
    FOUR,
    LINES,
    TWO,
    Transform,
    cook_toom,
    product,
)
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE

points = st.fractions(Fraction(1, 4), 4, max_denominator=8)


def filtered(transform: Transform, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A tile by the algorithm, in double precision."""
    spread, gather = product(transform.data), product(transform.inverse)
    moved = transform.transform_weight(weight[None, :, :, None]).reshape(len(spread), -1)
    return gather @ (moved * (spread @ data @ spread.T)) @ gather.T


def direct(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3))
    return np.einsum("yxab,ab->yx", windows, weight)


@given(st.lists(points, min_size=1, max_size=3, unique=True), st.integers(0, 9))
def test_any_points_give_the_convolution(positive, seed):
    """Two points of either sign make F(2 x 2, 3 x 3), four F(4 x 4, 3 x 3), six F(6 x 6, 3 x 3)."""
    transform = cook_toom(2 * len(positive), positive)
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((transform.inputs, transform.inputs))
    weight = rng.standard_normal((3, 3))
    magnitude = (
        max(np.abs(product(matrices)).max() for matrices in (transform.data, transform.inverse))
        * np.abs(transform.weight).max()
    )
    np.testing.assert_allclose(
        filtered(transform, data, weight), direct(data, weight), atol=1e-13 * magnitude**2
    )


@pytest.mark.parametrize("transform", [TWO, FOUR])
def test_shapes(transform):
    side = transform.outputs
    assert (transform.inputs, transform.products) == (side + 2, (side + 2) ** 2)
    assert transform.transform_weight(np.ones((5, 3, 3, 7))).shape == (transform.products, 7, 5)


@pytest.mark.parametrize("transform", LINES, ids=lambda t: f"{t.outputs},{t.taps}")
def test_filters_along_one_axis(transform):
    rng = np.random.default_rng(0)
    data, weight = rng.standard_normal(transform.inputs), rng.standard_normal(transform.taps)
    moved = (np.array(transform.weight) @ weight) * (product(transform.data) @ data)
    want = np.correlate(data, weight, "valid")
    assert len(want) == transform.outputs
    np.testing.assert_allclose(product(transform.inverse) @ moved, want, atol=1e-12)


@pytest.mark.parametrize("transform", [TWO, FOUR, *LINES])
def test_the_matrices_that_are_applied_at_run_time_are_exact_in_binary(transform):
    for factor in (*transform.data, *transform.inverse):
        assert np.array_equal(np.array(factor, np.float32), np.array(factor))


def test_errors_grow_with_the_tile_and_the_channels():
    small, large = winograd_error(TWO, 16), winograd_error(FOUR, 16)
    assert 0 < small < large < winograd_error(FOUR, 512) < DEFAULT_TOLERANCE


def test_the_usual_points_are_worse():
    usual = cook_toom(4, [Fraction(1), Fraction(2)])
    assert winograd_error(usual, 512) > 2 * winograd_error(FOUR, 512)
