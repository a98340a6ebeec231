"""Runs what is timed in a thread that stays on one core, and leaves the caller's where it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tvm_rammer.vdevice.cpu import host_cpu

T = TypeVar("T")


def on_one_core(work: Callable[[], T]) -> T:
    """What ``work()`` returns, called in a thread of its own on the first core we may use."""
    with ThreadPoolExecutor(1, initializer=_stay) as pool:
        return pool.submit(work).result()


def _stay() -> None:
    os.sched_setaffinity(0, {host_cpu().cpus[0]})
