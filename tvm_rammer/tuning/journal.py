"""What a session tells: to who watches it, and to a log in its folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

#: A line of JSON for each batch of measurements, each failure, and each beginning and end.
LOG = "tuning.log"


@dataclass(frozen=True)
class Progress:
    """How far a session is.

    Attributes
    ----------
    task : str
        The operator that was measured last.
    trials, of_trials : int
        Choices tried, of so many at most.
    best, untuned : float
        Seconds of the operator as a build would make it now, and without tuning.
    plan_gain : float
        How many times as fast the whole plan is expected to be so far.
    seconds_left : float
        Until all trials are tried, at the rate of this session; infinite before there is one.
    """

    task: str
    trials: int
    of_trials: int
    best: float
    untuned: float
    plan_gain: float = 1.0
    seconds_left: float = inf

    @property
    def gain(self) -> float:
        """How many times as fast the best choice is."""
        return self.untuned / self.best if 0 < self.best < inf else 1.0


class Journal:
    """Appends to the log of a folder, and tells who watches.

    Parameters
    ----------
    folder : path
    watch : callable
        Called with each :class:`Progress`.
    """

    def __init__(self, folder: Path, watch: Callable[[Progress], None]) -> None:
        self.path = folder / LOG
        self.watch = watch
        self.started = time.monotonic()
        self.tried = 0

    def tell(self, progress: Progress, count: int) -> None:
        """A batch of so many choices was measured."""
        self.tried += count
        self._write(asdict(progress))
        self.watch(progress)

    def seconds_left(self, trials: int) -> float:
        """Until so many more choices are tried."""
        spent = time.monotonic() - self.started
        return spent / self.tried * trials if self.tried else inf

    def failed(self, task: str, error: str) -> None:
        """A choice of a task could not be measured, or computes something else."""
        self._write({"task": task, "error": error})

    def network(self, text: str) -> None:
        """The network ran by records in turns with the one without."""
        self._write({"network": text})

    def note(self, text: str) -> None:
        """Something happened."""
        self._write({"note": text})

    def _write(self, content: dict[str, Any]) -> None:
        finite = {
            name: value
            for name, value in content.items()
            if not isinstance(value, float) or isfinite(value)
        }
        line = json.dumps({"time": round(time.time(), 3), **finite})
        # A line that a killed process left half written ends where this one begins.
        with open(self.path, "a+b") as file:
            if file.tell() and _last_byte(file) != b"\n":
                file.write(b"\n")
            file.write(f"{line}\n".encode())


def _last_byte(file: Any) -> bytes:
    file.seek(-1, 2)
    last: bytes = file.read(1)
    return last


def read_log(folder: Path) -> Iterator[dict[str, Any]]:
    """What the sessions of a folder told, in order; lines that are none are left out."""
    path = folder / LOG
    if not os.path.exists(path):  # also where its name is too long
        return
    for line in path.read_text(errors="replace").splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict):
            yield content
