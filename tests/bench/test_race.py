from __future__ import annotations

import time
from functools import partial

from bench.own_cores import Patience
from bench.race import race, ratios

NO_WAITING = Patience(0.0)


def test_the_slower_run_has_the_ratio_of_its_time() -> None:
    runs = {"fast": partial(time.sleep, 0.004), "slow": partial(time.sleep, 0.02)}
    times = race(runs, 0.1, NO_WAITING)
    assert len(times["fast"]) == len(times["slow"]) >= 7
    middle, low, high = ratios(times, "fast")["slow"]
    assert low <= middle <= high
    assert 1.2 < middle < 10.0  # the machine may be busy


def test_a_run_that_is_slower_than_the_time_there_is_takes_seven_turns() -> None:
    assert len(race({"slow": partial(time.sleep, 0.003)}, 0.0, NO_WAITING)["slow"]) == 7


def test_rounds_begin_before_their_runs() -> None:
    """Each of seven rounds has two runs that meet another plan's caches, and three that count."""
    order: list[str] = []

    def run() -> None:
        order.append("run")
        time.sleep(0.002)

    race({"plan": run}, 0.0, NO_WAITING, lambda: order.append("round"))
    first = order.index("round")
    assert order[first:] == ["round", *["run"] * 5] * 7


def test_what_is_compared_with_itself_is_equal() -> None:
    assert ratios({"a": [1.0, 2.0, 3.0]}, "a") == {"a": (1.0, 1.0, 1.0)}
