"""How far the sessions of a folder are, by what they told."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_rammer.errors import InputError
from tvm_rammer.tuning.journal import LOG, read_log


@dataclass(frozen=True)
class OperatorStatus:
    """Seconds of an operator as a build would make it, and without tuning."""

    name: str
    best: float
    untuned: float

    @property
    def gain(self) -> float:
        """How many times as fast it is."""
        return self.untuned / self.best if self.best else 1.0


@dataclass(frozen=True)
class TuningStatus:
    """How far the sessions of a folder are.

    Attributes
    ----------
    running : bool
        Whether a process is tuning into the folder.
    trials, of_trials : int
        Of the last session.
    plan_gain : float
        How many times as fast the whole plan of the last session is expected to be.
    seconds_left : float or None
        That the last session expected when it last told; None if it never did.
    operators : tuple of OperatorStatus
        Those that the log knows, the largest gain first.
    failures, notes : tuple of str
        Choices that could not be measured or compute something else; what else happened.
    gains : tuple of (int, float)
        The plan's gain by trials, of the last session.
    network : str
        What came out when the network ran by records in turns with the one without; empty if it
        did not.
    """

    running: bool
    trials: int
    of_trials: int
    plan_gain: float
    seconds_left: float | None
    operators: tuple[OperatorStatus, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    gains: tuple[tuple[int, float], ...]
    network: str


def tuning_status(folder: Path) -> TuningStatus:
    """How far the sessions of a folder are.

    Raises
    ------
    InputError
        If none ever told anything there.
    """
    log = list(read_log(folder))
    told = [line for line in log if _is_progress(line)]
    if not told:
        raise InputError(f"{folder}: nothing was tuned here (no {LOG} with results)")
    last = told[-1]
    operators = {
        line["task"]: OperatorStatus(line["task"], line["best"], line["untuned"]) for line in told
    }
    return TuningStatus(
        _is_locked(folder),
        last["trials"],
        last["of_trials"],
        last["plan_gain"],
        last.get("seconds_left"),
        tuple(sorted(operators.values(), key=lambda each: -each.gain)),
        tuple(f"{line['task']}: {line['error']}" for line in log if "error" in line),
        tuple(str(line["note"]) for line in log if "note" in line),
        tuple(_gains(told)),
        next((str(line["network"]) for line in reversed(log) if "network" in line), ""),
    )


def _gains(told: list[dict[str, Any]]) -> Iterator[tuple[int, float]]:
    """Of the last lines whose trials never fall."""
    start = 0
    for number in range(1, len(told)):
        if told[number]["trials"] < told[number - 1]["trials"]:
            start = number
    for line in told[start:]:
        yield line["trials"], line["plan_gain"]


def _is_progress(line: dict[str, Any]) -> bool:
    numbers = ("trials", "of_trials", "best", "untuned", "plan_gain")
    return "task" in line and all(isinstance(line.get(name), int | float) for name in numbers)


def _is_locked(folder: Path) -> bool:
    try:
        handle = os.open(folder / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
