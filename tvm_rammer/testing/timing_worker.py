"""One contender's process: sets it up, then runs blocks when it is told to.

Requests and replies are lines of JSON on standard input and what was standard output when the
process began; whatever the contender itself prints goes to standard error. This file imports
nothing of the package, so that it also runs under another interpreter.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]
_PR_SET_PDEATHSIG = 1
#: One in so many runs of a block is run once more before the block.
_UNTIMED = 8


class Worker:
    """Answers the requests ``set_up``, ``warm_up``, ``block`` and ``report``."""

    def __init__(self) -> None:
        self.affinity_at_start = sorted(os.sched_getaffinity(0))
        # NumPy's own threads, which take no part and would hide that the contender pinned itself.
        self.bystanders = _threads() - {os.getpid()}
        self.run: Callable[[], object] = lambda: None

    def set_up(self, function: str, arguments: Json, outputs: str) -> Json:
        """Make the contender, run it once, save what it computes."""
        module, _, name = function.partition(":")
        start = time.perf_counter()
        self.run, results, *facts = getattr(import_module(module), name)(**arguments)
        seconds = time.perf_counter() - start
        self.run()
        np.savez(outputs, *results())
        reply = {
            "set_up_s": seconds,
            "set_up_peak_mb": _peak_mb(),
            "affinity": self.affinity_at_start,
            "facts": facts[0]() if facts else {},
        }
        _forget_peak()
        return reply

    def warm_up(self, seconds: float) -> Json:
        """Run for that long, and three times unless that takes three times as long."""
        times: list[int] = []
        start = time.perf_counter()
        while (took := time.perf_counter() - start) < seconds or (
            len(times) < 3 and took < 3 * seconds
        ):
            times += _timed(self.run, 1)
        return {"run_ns": statistics.median(times), "affinity": self._affinity()}

    def block(self, runs: int) -> Json:
        """Time every run of a block; those that wake threads and fill caches do not count."""
        _timed(self.run, 1 + runs // _UNTIMED)
        return {"ns": _timed(self.run, runs)}

    def report(self) -> Json:
        """Peak of memory since the set-up."""
        return {"peak_mb": _peak_mb()}

    def _affinity(self) -> list[int]:
        """The CPUs that the contender's threads, taken together, may use."""
        cpus: set[int] = set()
        for thread in _threads() - self.bystanders:
            with suppress(ProcessLookupError):  # it ended while we looked
                cpus |= os.sched_getaffinity(thread)
        return sorted(cpus)

    def answer(self, request: Json) -> Json:
        """The reply to one request; what the contender raises is part of it."""
        try:
            method = getattr(self, request.pop("do"))
            return dict(method(**request))
        except Exception as error:
            # Where a package lies on this machine tells a reader of results nothing.
            text = re.sub(r'[^\s"]*/site-packages/', "", " ".join(str(error).split()))
            # A module of this package that is not there is a fault, not a peer left out.
            absent = isinstance(error, ModuleNotFoundError | NotImplementedError)
            if absent and "tvm_rammer" not in text:
                return {"missing": text}
            return {"error": f"{type(error).__name__}: {text}"}


def main() -> None:
    """Serve until standard input ends."""
    # A worker sleeps by being stopped: without this it would outlive a killed parent for ever.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=replies, flush=True)


def _timed(run: Callable[[], object], runs: int) -> list[int]:
    clock, times = time.perf_counter_ns, []
    for _ in range(runs):
        start = clock()
        run()
        times.append(clock() - start)
    return times


def _peak_mb() -> float:
    """Peak of resident memory; ``ru_maxrss`` would be the parent's peak if that is larger."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def _forget_peak() -> None:
    """Let the peak be that from now on, so that compiling is not counted as running."""
    with suppress(OSError):  # without the right to, the peak stays that of all the time
        Path("/proc/self/clear_refs").write_text("5")


def _threads() -> set[int]:
    return {int(thread.name) for thread in Path("/proc/self/task").iterdir()}


if __name__ == "__main__":
    main()
