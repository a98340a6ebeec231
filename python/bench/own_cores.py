"""Tells whether our cores compute side by side, and waits until they do.

A hypervisor may run two of them as threads of one core of the host, for seconds or minutes. Then a
second vEU gains nothing, whoever's plan it runs, and a time says more about the host than about the
plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import tvm

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.host import calibrated, configure_pool
from tvm_rammer.backend.cpu.host.cpu_target import host_target
from tvm_rammer.backend.cpu.host.measure_ceilings import compile_loops, repetitions, seconds_of
from tvm_rammer.backend.cpu.host.measure_machine import kernels, seconds_each
from tvm_rammer.backend.cpu.host.one_core import on_every_core, on_one_core
from tvm_rammer.machine.target import architecture

#: Neighbours on the host take some of a core's clock; another thread on it takes half.
OWN_CORE = 0.75
#: Seconds that a core computes when it is asked, and between two questions.
_PROBE_SECONDS, _PAUSE_SECONDS = 5e-3, 0.5
#: Measured twice in one state, signals differ by a quarter at most; between states they double.
SAME_STATE = 1.5


class OwnCores:
    """Asks the cores that this process may use; what they run is compiled once."""

    def __init__(self) -> None:
        vdevice = vdevice_for()
        self._compute = compile_loops(resolve_target(), vdevice)["compute"]
        self._vector_words = vdevice.vector_bytes // 4
        rounds = on_one_core(partial(repetitions, self._run, _PROBE_SECONDS))
        self._seconds = partial(seconds_of, self._run, rounds)

    def together(self) -> float:
        """What each core computes while all do, as a part of what one computes alone."""
        alone = on_one_core(self._seconds)
        each = on_every_core(self._seconds)
        # Somebody may have disturbed the core while it was alone: none is faster for company.
        own = min(alone, *each)
        return own * sum(1 / seconds for seconds in each) / len(each)

    def are_ours(self) -> bool:
        """Whether every core is one of our own."""
        return self.together() >= OWN_CORE

    def wait(self, seconds: float) -> float:
        """Wait until every core is one of our own, but not longer; how many seconds that took."""
        start = time.monotonic()
        while not self.are_ours() and time.monotonic() < start + seconds:
            time.sleep(min(_PAUSE_SECONDS, seconds))
        return time.monotonic() - start

    def _run(self, rounds: int) -> None:
        # Cores that write to one line would wait for each other.
        self._compute(rounds, tvm.runtime.tensor(np.zeros(self._vector_words, "int32")))


class NearCores(OwnCores):
    """Cores of our own that signal each other as fast as when they were calibrated.

    The workers of TVM's pool ask each other, in this process: where they belong to contenders in
    processes of their own, they would disturb those.
    """

    def __init__(self) -> None:
        super().__init__()
        vdevice, target = calibrated(vdevice_for()), host_target()
        known = vdevice.point_to_point_seconds if vdevice.calibrated else float("inf")
        self._slowest, self._workers = SAME_STATE * known, vdevice.num_veus
        self._kernels = tvm.compile(kernels(architecture(target)), target=target)

    def are_ours(self) -> bool:
        return self.signal() <= self._slowest and super().are_ours()

    def signal(self) -> float:
        """Seconds of a signal between two cores; 0 where there are not enough workers to ask.

        Workers that wait for one that nobody gave them would wait forever.
        """
        if configure_pool(self._workers) < self._workers:
            return 0.0
        return seconds_each(self._kernels["point_to_point"], self._workers)


class Patience:
    """Waits for our own cores again and again, so many seconds in all.

    Parameters
    ----------
    seconds : float
    cores : callable
        Makes what is asked, when it is asked first.
    """

    def __init__(self, seconds: float, cores: Callable[[], OwnCores] = OwnCores) -> None:
        self.seconds = seconds
        self._make = cores

    def wait(self) -> float:
        """Wait as long as patience lasts; how many seconds that took."""
        if self.seconds <= 0:
            return 0.0
        waited = self._cores.wait(self.seconds)
        self.seconds -= waited
        return waited

    @cached_property
    def _cores(self) -> OwnCores:
        return self._make()
