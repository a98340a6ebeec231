"""Plans of one library against each other: they share code, weights and workers, and take turns.

What differs between them is the plan, so that one process is fair here; peers get one each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

from bench.own_cores import Patience
from tvm_rammer.schedule.median_interval import median_interval

Run = Callable[[], object]

_FEWEST_ROUNDS, _MOST_ROUNDS = 7, 61
#: A sample is as many runs as take about this long, and a few at least.
_SAMPLE_SECONDS, _FEWEST_RUNS = 2e-3, 3
#: The first runs of a turn meet the caches, and maybe the workers, of another plan.
_UNTIMED_RUNS = 2


def race(
    runs: Mapping[str, Run],
    seconds: float,
    patience: Patience,
    begin_round: Run | None = None,
) -> dict[str, list[float]]:
    """Time runs in turns.

    Parameters
    ----------
    runs : mapping of str to callable
    seconds : float
        After which no further round begins; but seven rounds there are.
    patience : Patience
        How long turns may wait in all for a quiet machine; that does not count.
    begin_round : callable, optional
        Called before the first run of every round, after it waited.

    Returns
    -------
    dict of str to list of float
        Seconds of a run in every round.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    counts = {name: _count(run) for name, run in runs.items()}
    end = time.perf_counter() + seconds
    for number in range(_MOST_ROUNDS):
        if number >= _FEWEST_ROUNDS and time.perf_counter() > end:
            break
        end += patience.wait()
        if begin_round is not None:
            begin_round()
        for name, run in runs.items():
            end += patience.wait()
            for _ in range(_UNTIMED_RUNS):
                run()
            found[name].append(_seconds(run, counts[name]))
    return found


def ratios(times: Mapping[str, list[float]], base: str) -> dict[str, tuple[float, float, float]]:
    """Time of each over that of ``base`` in the same round: the median and its 95 % interval."""
    return {
        name: median_interval([a / b for a, b in zip(mine, times[base], strict=True)])
        for name, mine in times.items()
    }


def _count(run: Run) -> int:
    run()
    once = median(_seconds(run, 1) for _ in range(3))
    return max(_FEWEST_RUNS, int(_SAMPLE_SECONDS / once))


def _seconds(run: Run, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count
