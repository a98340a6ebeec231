"""Trials go where they are expected to gain most for the plan."""

from __future__ import annotations

import random

import pytest

from tvm_rammer.tuning.budget import TaskProgress, next_task, trust_in_bounds


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


def test_others_are_glanced_at_before_one_is_searched():
    """Also where the likely choices gained much: what is left of an operator is not known."""
    first, second = started(), started()
    first.glanced(0.5)
    assert first.best == 0.5
    assert next_task([first, second], [0.5, 0.2]) == 1
    second.glanced(1.0)
    assert next_task([first, second], [0.5, 0.2]) == 0


def test_nothing_is_left_at_a_bound_that_was_tested():
    for bound, left in ((1.0, None), (0.8, 0)):
        progress = started(bound=bound)
        assert next_task([progress], [1.0]) == 0
        progress.took(1.0)
        assert next_task([progress], [1.0]) == left


def test_a_gain_puts_a_bound_to_the_test_again():
    progress = started(bound=0.9)
    progress.took(1.0)
    progress.took(0.9)
    assert next_task([progress], [1.0]) == 0
    progress.took(0.9)
    assert next_task([progress], [1.0]) is None


def test_a_bound_that_is_beaten_takes_all_others_down():
    """They rest on the same ceilings: an operator at twice its bound makes 1.5 times no bound."""
    beaten, other = started(bound=2.0), started(bound=1.0)
    for each in (beaten, other):
        each.took(1.0)
    assert trust_in_bounds([beaten, other]) == 0.5
    assert next_task([beaten, other], [1.0, 1.0]) == 1
    assert next_task([beaten], [1.0]) is None


@pytest.mark.parametrize("seed", range(200))
def test_no_bound_ends_a_session_by_itself(seed):
    """Whatever the bounds are, nothing that matters is left before a batch brought no gain."""
    chance = random.Random(seed)
    count = chance.randint(1, 6)
    progress = [started(10 ** chance.uniform(-6, -3)) for _ in range(count)]
    for each in progress:
        each.bound = each.untuned * chance.choice((0.0, chance.uniform(0, 1), 10.0))
    weights = [chance.uniform(0.1, 1) for _ in range(count)]
    futile = [False] * count
    batches = 0
    while (number := next_task(progress, weights)) is not None:
        seconds = progress[number].best * chance.choice((0.8, 0.95, 1.0, 1.0, 1.3))
        progress[number].took(seconds)
        futile[number] = progress[number].tested
        progress[number].exhausted = chance.random() < 0.05
        batches += 1
    done = (f or p.exhausted for f, p in zip(futile, progress, strict=True))
    assert all(done) and batches >= count
    trust = trust_in_bounds(progress)
    assert all(trust * each.bound <= each.best * (1 + 1e-9) for each in progress)


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
