from __future__ import annotations

from bench.class_gains import CLASSES, class_gains, gain
from small_studies import small_scaling
from timed_records import records, timed

from tvm_rammer.testing.models import MODELS

FASTER = records(timed("auto", 2.0), timed("sequential", 3.0), timed("per-op", 5.0))


def test_classes_are_of_models_that_exist_each_in_one() -> None:
    named = [model for each in CLASSES for model in each.models]
    assert set(named) <= set(MODELS)
    assert len(named) == len(set(named))


def test_the_gain_is_over_the_better_plain_plan() -> None:
    assert gain(FASTER) == (0.5, 0.5, 0.5)
    assert gain(records(timed("auto", 2.0))) is None


def test_a_class_has_its_measured_gain_and_what_the_bounds_leave() -> None:
    models = {"lstm_8x8x256": FASTER, "vgg19": FASTER}
    parts = class_gains(models, {"lstm_8x8x256": small_scaling()}, 2, {"lstm_8x8x256": "estf"})
    assert parts[2:4] == [
        "### Recurrent networks",
        "Goal: 30%. Measured, geometric mean of 1: +50.0%, which meets it. "
        "auto chose a co-scheduled plan for 1 of 1. "
        "The bounds leave 100.0% over the sequential plans at most.",
    ]
    row = "| lstm_8x8x256 | estf | +50% | +50% to +50% | 4 | 4 | 2 | work | 100% |"
    assert parts[4].splitlines()[2:] == [row]
    assert len(parts) == 5


def test_where_the_bounds_leave_too_little_the_page_says_so() -> None:
    scaling = small_scaling()
    scaling.makespans["2"]["bound"] = 3.9e-3
    parts = class_gains({}, {"recommender": scaling}, 2, {})
    assert parts[3] == (
        "Goal: 20%. The bounds leave 2.6% over the sequential plans at most: no plan of these "
        "kernels can reach the goal."
    )
    assert "| recommender | - | - | - | 4 | 4 | 3.9 | work | 3% |" in parts[4]


def test_other_numbers_of_veus_and_other_models_say_nothing() -> None:
    assert class_gains({}, {"recommender": small_scaling()}, 4, {}) == []
    assert class_gains({"vgg19": FASTER}, {"vgg19": small_scaling()}, 2, {}) == []
