"""Trials go where they are expected to gain most for the plan."""

from __future__ import annotations

from tvm_rammer.tuning.budget import TaskProgress, next_task


def started(seconds: float = 1.0, bound: float = 0.0) -> TaskProgress:
    return TaskProgress(untuned=seconds, best=seconds, bound=bound)


def test_the_operator_that_most_hangs_on_is_first():
    assert next_task([started(), started()], [1.0, 2.0]) == 1


def test_an_operator_that_gains_nothing_makes_way():
    first, second = started(), started()
    first.took(1.0)
    assert next_task([first, second], [1.0, 0.9]) == 1
    first = started()
    first.took(0.6)
    assert next_task([first, second], [1.0, 0.9]) == 0


def test_nothing_is_left_at_the_bound():
    assert next_task([started(bound=1.0)], [1.0]) is None
    assert next_task([started(bound=0.8)], [1.0]) == 0


def test_tuning_ends_when_no_gain_is_near():
    progress = started()
    batches = 0
    while next_task([progress], [1.0]) is not None:
        progress.took(1.0)
        batches += 1
    assert batches == 9


def test_an_operator_without_choices_left_is_left_alone():
    done = started()
    done.exhausted = True
    assert next_task([done, started()], [9.0, 1.0]) == 1
    assert next_task([done], [1.0]) is None
