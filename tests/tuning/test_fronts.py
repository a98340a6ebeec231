"""Which choices a build takes of those that ran in turns with the untuned one."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import inf

from tvm_rammer.schedule.median_interval import median_interval
from tvm_rammer.tuning.fronts import (
    RacedChoice,
    chosen_front,
    fastest_by_tiles,
    is_undecided,
    latest,
    proved,
)


def untuned(tiles: int, ratio: float = 1.0, number: int = 0) -> RacedChoice:
    return RacedChoice(number, tiles, "", (ratio, ratio, ratio))


def tuned(number: int, tiles: int, ratio: float, alike: str = "a", high: float = 0.0):
    return RacedChoice(number, tiles, alike, (ratio, ratio, high or ratio))


def numbers(*raced: RacedChoice, veus: int = 2, fast_only: bool = False) -> list[int]:
    return [each.number for each in chosen_front(raced, veus, fast_only)]


def test_without_a_race_nothing_is_chosen():
    assert numbers() == numbers(tuned(3, 8, 0.1)) == []


def test_a_gain_within_noise_is_none():
    assert numbers(untuned(8), tuned(3, 8, 0.98)) == []
    assert numbers(untuned(8), tuned(3, 8, 0.9, high=0.99)) == []
    assert numbers(untuned(8), tuned(3, 8, 0.9, high=0.96)) == [3]


def test_what_loses_on_all_veus_is_not_chosen():
    """One large tile is efficient, and leaves the second vEU idle."""
    assert numbers(untuned(8), tuned(3, 1, 0.8)) == []
    assert numbers(untuned(8), tuned(3, 1, 0.8), veus=1) == [3]


def test_untuned_variants_for_large_devices_count():
    large = untuned(64, 1.1, -1)
    assert numbers(untuned(8), tuned(3, 8, 0.9), veus=64) == [3]
    assert numbers(untuned(8), large, tuned(3, 8, 0.9), veus=64) == []


def test_a_front_has_more_tiles_for_more_time():
    raced = [untuned(8), tuned(1, 4, 0.7), tuned(2, 8, 0.8), tuned(3, 8, 0.9), tuned(4, 16, 0.75)]
    assert numbers(*raced) == [1, 4]
    assert numbers(*raced, tuned(5, 64, 1.2)) == [1, 4]


def test_the_fastest_alone():
    raced = [untuned(8), tuned(1, 4, 0.7), tuned(4, 16, 0.75)]
    assert numbers(*raced, veus=16) == [1, 4]
    assert numbers(*raced, veus=16, fast_only=True) == [4]


def test_each_number_of_tiles_has_its_fastest():
    """Those with few tiles need less of a core, and all of them would hide finer ones."""
    coarse = {k: 1 + k / 100 for k in range(30)}
    fine = {k: 1.5 + k / 100 for k in range(30, 40)}
    found = fastest_by_tiles({**fine, **coarse, 40: inf}, lambda k: 4 if k < 30 else 16)
    assert found == [0, 1, 2, 3, 30, 31, 32, 33]


def test_one_race_proves_nothing():
    first, second = tuned(3, 8, 0.5), tuned(3, 8, 0.9)
    assert proved({0: [untuned(8)], 3: [first]}) == [untuned(8)]
    assert proved({0: [untuned(8)], 3: [first, second]}) == [untuned(8), second]
    assert latest({0: [untuned(8)], 3: [first]}) == [untuned(8), first]


def test_what_a_noisy_race_leaves_open_runs_again():
    """As long as a gain is likely, and three times at most."""
    wide, clear, none = tuned(3, 8, 0.8, high=1.2), tuned(3, 8, 0.8), tuned(3, 8, 0.99, high=1.2)
    assert is_undecided([wide]) and is_undecided([clear, wide])
    assert not is_undecided([wide, wide, wide])
    assert not is_undecided([wide, clear]) and not is_undecided([none])


def noisy_race(chance: random.Random, choices: Iterable[int], truth: float) -> list[RacedChoice]:
    """Of choices that all take so much of the untuned one's time, on a machine that is not quiet.

    What else it does slows down or speeds up a choice throughout a race, not only single rounds.
    """
    raced = [untuned(8)]
    for number in choices:
        luck = chance.lognormvariate(0, 0.03)
        rounds = [truth * luck * chance.lognormvariate(0, 0.1) for _ in range(21)]
        raced.append(RacedChoice(number, 8, "a", median_interval(rounds)))
    return raced


def test_who_wins_by_luck_does_not_win_twice():
    """Of operators with 40 choices, all of them 1 % slower than the untuned one."""
    once, twice = 0, 0
    for seed in range(300):
        chance = random.Random(seed)
        races = {each.number: [each] for each in noisy_race(chance, range(1, 41), 1.01)}
        winners = chosen_front(latest(races), 2)
        once += bool(winners)
        for winner in winners:
            races[winner.number] += noisy_race(
                chance, range(winner.number, winner.number + 1), 1.01
            )[1:]
        twice += bool(chosen_front(proved(races), 2))
    assert once > 50
    assert twice <= once / 50


def test_choices_that_are_not_alike_are_not_mixed():
    raced = [untuned(8), tuned(1, 8, 0.7), tuned(2, 16, 0.75, "b"), tuned(3, 32, 0.76, "b")]
    assert numbers(*raced) == [1]
    assert numbers(*raced, veus=32) == [2, 3]
