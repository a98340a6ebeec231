"""Which choices a build takes of those that ran in turns with the untuned one."""

from __future__ import annotations

from tvm_rammer.tuning.fronts import RacedChoice, chosen_front


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


def test_choices_that_are_not_alike_are_not_mixed():
    raced = [untuned(8), tuned(1, 8, 0.7), tuned(2, 16, 0.75, "b"), tuned(3, 32, 0.76, "b")]
    assert numbers(*raced) == [1]
    assert numbers(*raced, veus=32) == [2, 3]
