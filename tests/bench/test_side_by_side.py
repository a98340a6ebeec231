"""Runs go on at the same time, each in a thread that stays on a core of its own."""

from __future__ import annotations

import os
import threading
import time

import pytest
from bench.side_by_side import SideBySide

CORES = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


class Run:
    """Remembers where it ran, and takes some time."""

    def __init__(self, seconds: float = 0.003) -> None:
        self.seconds = seconds
        self.places: list[tuple[int, frozenset[int]]] = []

    def __call__(self) -> None:
        self.places.append((threading.get_ident(), frozenset(os.sched_getaffinity(0))))
        time.sleep(self.seconds)


@needs_two_cores
def test_each_run_has_a_thread_and_a_core_to_itself() -> None:
    runs = [Run(), Run()]
    together = SideBySide(runs)
    together()
    together.end()
    for run, core in zip(runs, CORES, strict=False):
        assert len({thread for thread, _ in run.places}) == 1
        assert {cores for _, cores in run.places[1:]} == {frozenset({core})}
    assert runs[0].places[0][0] != runs[1].places[0][0]


@needs_two_cores
def test_runs_go_on_at_the_same_time() -> None:
    """Each waits for the other: one after the other they would never end."""
    meeting = threading.Barrier(2, timeout=20)
    alone = [True, True]

    def run(number: int) -> None:
        if alone[number]:  # the first run of a thread is for itself
            alone[number] = False
        else:
            meeting.wait()

    together = SideBySide([lambda: run(0), lambda: run(1)])
    together.end()
    assert meeting.broken is False


@needs_two_cores
def test_short_runs_are_repeated_in_a_call() -> None:
    runs = [Run(1e-4), Run(1e-4)]
    together = SideBySide(runs)
    before = len(runs[0].places)
    together()
    together.end()
    assert together.runs_of_a_call == 2 * (len(runs[0].places) - before)
    assert together.runs_of_a_call >= 4  # of a tenth of a millisecond, in calls of 5 ms


def test_there_are_no_more_runs_than_cores() -> None:
    together = SideBySide([Run() for _ in range(len(CORES) + 3)])
    together.end()
    assert together.runs_of_a_call % len(CORES) == 0


def test_what_fails_in_a_thread_is_told() -> None:
    def fail() -> None:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        SideBySide([fail])
