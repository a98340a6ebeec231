"""Runs what is timed in threads that stay on a core each, and leaves the caller's where it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from tvm_rammer.backend.cpu.host.processor import host_cpu

T = TypeVar("T")


def on_one_core(work: Callable[[], T]) -> T:
    """What ``work()`` returns, called in a thread of its own on the first core we may use."""
    return _on(host_cpu().cpus[:1], work)[0]


def on_every_core(work: Callable[[], T]) -> list[T]:
    """What ``work()`` returns, called on all cores that we may use at the same time."""
    return _on(sorted(os.sched_getaffinity(0)), work)


def _on(cpus: Sequence[int], work: Callable[[], T]) -> list[T]:
    start = Barrier(len(cpus))

    def pinned(cpu: int) -> T:
        os.sched_setaffinity(0, {cpu})
        start.wait()
        return work()

    with ThreadPoolExecutor(len(cpus)) as pool:
        return list(pool.map(pinned, cpus))
