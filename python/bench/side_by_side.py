"""A model on each core at the same time: what its kernels reach where nothing has to be shared out.

Nobody waits for another core, nor for what it computed. A plan that shares each operator out is as
good as that at best where computing sets the pace. Where weights do, the cores bring them for each
other; and a part of them may stay in a cache that the whole does not fit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil

#: Calls last so long at least: to start them takes some hundredths of a millisecond.
_CALL_SECONDS = 5e-3


class SideBySide:
    """Runs that go on at the same time, each on a core of its own.

    Parameters
    ----------
    runs : sequence of callable
        One for each core that is used, in the order of the cores.
    """

    def __init__(self, runs: Sequence[Callable[[], object]]) -> None:
        cpus = sorted(os.sched_getaffinity(0))[: len(runs)]
        self._runs = runs[: len(cpus)]
        self._threads = [ThreadPoolExecutor(1) for _ in cpus]
        for thread, run, cpu in zip(self._threads, self._runs, cpus, strict=True):
            thread.submit(_settle, run, cpu).result()
        seconds = max(self._all(_seconds, 1))
        self._count = max(1, ceil(_CALL_SECONDS / seconds))

    @property
    def runs_of_a_call(self) -> int:
        """Of all cores."""
        return self._count * len(self._runs)

    def __call__(self) -> None:
        """So many runs on every core."""
        self._all(_seconds, self._count)

    def end(self) -> None:
        """Let go of the threads."""
        for thread in self._threads:
            thread.shutdown()

    def _all(self, function: Callable[..., float], count: int) -> list[float]:
        started = [
            thread.submit(function, run, count)
            for thread, run in zip(self._threads, self._runs, strict=True)
        ]
        return [future.result() for future in started]


def _settle(run: Callable[[], object], cpu: int) -> None:
    run()  # the first run of a thread sets its pool up, which may move it
    os.sched_setaffinity(0, {cpu})


def _seconds(run: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return time.perf_counter() - start
