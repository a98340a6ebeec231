"""Contenders for the tests of the fair clock: they sleep, raise, lie, die, hang, spin, pin."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from importlib import import_module

import numpy as np

Prepared = tuple[Callable[[], object], Callable[[], list[np.ndarray]]]


def sleeps(seconds: float, value: float = 1.0) -> Prepared:
    print("a contender may print what it likes")
    return lambda: time.sleep(seconds), lambda: [np.full(3, value)]


def raises(during: str) -> Prepared:
    def run() -> None:
        raise ValueError('no such\nkernel in "/of/a/user/site-packages/peer/kernels.py"')

    if during == "set-up":
        run()
    return run, lambda: [np.ones(3)]


def misses() -> Prepared:
    import_module("a_peer_that_nobody_has")
    return sleeps(0)


def lacks() -> Prepared:
    raise NotImplementedError("there is no converter\nof GreaterOrEqual")


def dies() -> Prepared:
    os.write(2, b"something\nlast words\n")
    os.abort()


def hangs() -> Prepared:
    time.sleep(60)
    return sleeps(0)


def spins() -> Prepared:
    def forever() -> None:
        while True:
            pass

    threading.Thread(target=forever, daemon=True).start()
    return sleeps(0)


def pins() -> Prepared:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return sleeps(0)


def tells_environment(variable: str) -> Prepared:
    value = float(os.environ[variable])
    return sleeps(0, value)


def tells_facts(**facts: str) -> tuple[object, object, object]:
    return *sleeps(0), lambda: facts
