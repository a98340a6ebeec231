"""Records of the tuner on disk, and which choices a build takes by them.

The records are MetaSchedule's own: a folder with a file of workloads and one of measurements.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.backend.protocol import Backend
from tvm_rammer.backend.registry import backend_named
from tvm_rammer.errors import InputError
from tvm_rammer.kernel.scheduled import UNTUNED, Choice
from tvm_rammer.machine import VDevice
from tvm_rammer.region.kernel_library import Tuned
from tvm_rammer.tuning.task import Task

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
#: What failed is recorded as taking longer than this.
_FAILED_SECONDS = 1e9
#: A choice replaces the untuned one if it takes at most this part of its time: less is noise.
_BETTER = 0.97
#: Most choices of an operator that a build takes, and how many of the fastest are looked at.
_MOST_KEPT, _LOOKED_AT = 3, 24


@dataclass(frozen=True)
class MeasuredChoice:
    """A choice of a task and the seconds that all of its tiles took one core."""

    choice: Choice
    seconds: float


class Database:
    """Records of the tuner.

    Parameters
    ----------
    folder : path
        Written by :func:`tvm_rammer.tune`.

    Raises
    ------
    InputError
        If there are no records there.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        #: Lines that could not be read: in which file, and why.
        self.skipped: list[str] = []
        if not (self.folder / RECORDS).is_file():
            raise InputError(
                f"{self.folder}: there are no records of the tuner here (no {RECORDS}); "
                "make them by tvm_rammer.tune or tvm-rammer tune"
            )

    def __len__(self) -> int:
        return sum(map(len, self._seconds.values()))

    def measured(self, task: Task) -> list[MeasuredChoice]:
        """What was measured of a task, the fastest first."""
        known = self._seconds.get(_key(task.workload()), {})
        found = [MeasuredChoice(task.choices[number], seconds) for number, seconds in known.items()]
        return sorted(found, key=lambda each: each.seconds)

    def chosen(self, task: Task) -> list[Choice]:
        """The choices that a build takes: the fastest, and finer ones that pay on larger devices.

        Nothing if none is better than the untuned one.
        """
        measured = self.measured(task)
        untuned = next((m.seconds for m in measured if m.choice.text == UNTUNED), None)
        if not measured or (untuned and measured[0].seconds > _BETTER * untuned):
            return []
        return _front(measured[:_LOOKED_AT], backend_named(task.vdevice.kind))

    def tuned(self, vdevice: VDevice, winograd_tolerance: float) -> Tuned:
        """What a build asks for the choices of an operator."""

        def choices(func: tirx.PrimFunc, constants: frozenset[int]) -> Sequence[Choice]:
            task = Task(func, tuple(sorted(constants)), vdevice, winograd_tolerance)
            return self.chosen(task) if task.choices else ()

        return choices

    @cached_property
    def _seconds(self) -> Mapping[Any, Mapping[int, float]]:
        """By workload and number of a choice, of those that did not fail."""
        workloads = list(self._workloads())
        found: dict[Any, dict[int, float]] = {}
        for place, line in enumerate(self._lines(RECORDS), 1):
            try:
                index, (trace, runs, *_) = json.loads(line)
                number, seconds = _decided(trace), sum(map(float, runs)) / len(runs)
                workload = workloads[index] if index >= 0 else None
            except (ValueError, TypeError, LookupError, StopIteration, ZeroDivisionError):
                self.skipped.append(f"{RECORDS}, line {place}: no record")
                continue
            if workload is not None and seconds < _FAILED_SECONDS:
                known = found.setdefault(workload, {})
                known[number] = min(seconds, known.get(number, seconds))
        return found

    def _workloads(self) -> Iterator[Any]:
        """A key for every line, ``None`` for one that is no workload."""
        for place, line in enumerate(self._lines(WORKLOADS), 1):
            try:
                _, text = json.loads(line)
                # TVM writes a text behind its length.
                yield _key(tvm.ir.load_json(base64.b64decode(text)[8:].decode()))
            except Exception:
                self.skipped.append(f"{WORKLOADS}, line {place}: no workload")
                yield None

    def _lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text(errors="replace").splitlines()


def _front(measured: Sequence[MeasuredChoice], backend: Backend) -> list[Choice]:
    """The fastest choice, and those with more tiles than all faster ones, while they pay."""
    kept: list[Choice] = []
    most = 0
    for each in measured:
        if len(kept) == _MOST_KEPT or each.seconds > 1.5 * measured[0].seconds:
            break
        stages = backend.split(each.choice.emit().func).stages
        tiles = max(stage.num_tiles for stage in stages)
        if not kept or tiles >= 2 * most:
            kept.append(each.choice)
            most = max(most, tiles)
    return kept


def _key(workload: Any) -> Any:
    structure: Any = tvm_ffi.StructuralKey
    return structure(workload)


def _decided(trace: Any) -> int:
    """The number of the choice in a trace as JSON: the decision of its one sample."""
    steps, decisions = trace
    (place,) = (k for k, step in enumerate(steps) if step[0] == "SampleCategorical")
    return next(int(decision) for number, decision in decisions if number == place)
