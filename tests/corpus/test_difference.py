import numpy as np
from corpus.difference import compare


def test_small_differences_agree_relative_to_the_norm_or_to_the_scale() -> None:
    want = [np.array([1.0, 2.0, 4.0], "float32")]
    found, reason = compare([want[0] + np.float32(4e-4)], want)
    assert reason == ""
    assert found is not None and found.agrees
    assert abs(found.absolute - 4e-4) < 1e-6
    assert abs(found.of_scale - 1e-4) < 1e-6
    found, reason = compare([want[0] + np.float32(4e-2)], want)
    assert reason == "output 0 is off by 0.04, 0.01 of its scale, 0.015 relative"
    assert found is not None and not found.agrees


def test_an_output_that_is_wrong_counts_even_if_another_is_further_away_and_agrees() -> None:
    small = np.array([1.0, 1.0], "float32")
    wrong, reason = compare([small, small * 2], [small, small])
    assert wrong is not None and not wrong.agrees
    assert reason.startswith("output 1 is off by 1, 1 of its scale")


def test_zeros_that_are_not_computed_are_wrong() -> None:
    found, _ = compare([np.array([1e-3], "float32")], [np.array([0.0], "float32")])
    assert found is not None and not found.agrees


def test_values_that_are_not_finite_must_be_the_same() -> None:
    want = [np.array([np.nan, np.inf, -np.inf, 1.0], "float32")]
    assert compare([want[0].copy()], want)[1] == ""
    got = [np.array([np.nan, np.inf, np.inf, 1.0], "float32")]
    assert compare(got, want)[1] == (
        "output 0: the values that are not finite differ (3 here, 3 in the reference)"
    )
    assert "(0 here, 3 in the reference)" in compare([np.zeros(4, "float32")], want)[1]


def test_outputs_of_another_shape_type_or_number_cannot_be_compared() -> None:
    one = np.zeros((2, 3), "float32")
    assert compare([one], [one, one]) == (None, "1 outputs instead of 2")
    assert compare([one.T], [one]) == (None, "output 0 has shape (3, 2) instead of (2, 3)")
    assert compare([one.astype("int64")], [one]) == (None, "output 0 is int64 instead of float32")
    assert compare([], []) == (None, "the model has no outputs")
    nothing = np.zeros((0, 3), "float32")
    assert compare([nothing], [nothing])[1] == ""
