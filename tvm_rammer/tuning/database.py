"""Records of the tuner on disk, and which choices a build takes by them.

A folder with four files of a line for each record: the workloads and the measurements are
MetaSchedule's own, the races are what choices took in turns with the untuned one, and networks by
records in turns with those without.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.errors import InputError
from tvm_rammer.kernel.scheduled import Choice
from tvm_rammer.machine import VDevice
from tvm_rammer.region.kernel_library import Tuned
from tvm_rammer.tuning.fronts import RacedChoice, Races, chosen_front, proved
from tvm_rammer.tuning.networks import NetworkRace, left_out
from tvm_rammer.tuning.sketch_choice import is_sketch, is_sketched, sketch_number, trace_text
from tvm_rammer.tuning.task import Task, TaskOrigin, veus_of
from tvm_rammer.typed_json import parse_json, read_as
from tvm_rammer.units import counted, listed
from tvm_rammer.whole_files import refusals_told

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
RACES, NETWORKS = "database_race.json", "database_network.json"
#: What failed is recorded as taking longer than this.
FAILED_SECONDS = 1e9


class RecordsWarning(UserWarning):
    """Records of the tuner are of no use for what is built."""


@dataclass(frozen=True)
class MeasuredChoice:
    """A choice of a task and the seconds that all of its tiles took one core."""

    number: int
    choice: Choice
    seconds: float


@dataclass(frozen=True)
class TaskRace:
    """Choices of a workload that ran in turns; ``seconds`` are those of the untuned one."""

    workload: int
    seconds: float
    raced: tuple[RacedChoice, ...]

    def line(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self)) + "\n"


class Database:
    """Records of the tuner.

    Parameters
    ----------
    folder : path
        Written by :func:`tvm_rammer.tune`, or one file that ``tvm-rammer records`` wrote.
    fast_only : bool
        Take the one choice of an operator that is fastest if it has the device to itself, and none
        that cost less beside others: what tuners for one operator at a time do.

    Raises
    ------
    InputError
        If there are no records there.
    """

    def __init__(self, folder: str | os.PathLike[str], fast_only: bool = False) -> None:
        self.folder = Path(folder)
        self.fast_only = fast_only
        #: Lines that could not be read: in which file, and why.
        self.skipped: list[str] = []
        self._usable: list[tuple[str, str]] = []
        self._traces: dict[int, str] = {}
        with _reading(self.folder):
            in_one_file = stat.S_ISREG(self.folder.stat().st_mode)
            if not in_one_file and RECORDS not in os.listdir(self.folder):
                raise InputError(
                    f"{self.folder}: there are no records of the tuner here (no {RECORDS}); "
                    "make them by tvm_rammer.tune or tvm-rammer tune"
                )
        if in_one_file and WORKLOADS not in self._held:
            raise InputError(
                f"{self.folder}: holds no records of the tuner; give a folder of "
                "tvm-rammer tune, or a file of tvm-rammer records"
            )

    def __len__(self) -> int:
        return sum(seconds < inf for known in self._seconds.values() for seconds in known.values())

    def tried(self, task: Task) -> Mapping[int, float]:
        """The seconds of every choice of a task that was tried; infinite where it failed."""
        found = self._seconds.get(_key(task.workload()), {})
        task.known.traces.update((k, self._traces[k]) for k in found if is_sketch(k))
        return found

    def place(self, task: Task) -> int:
        """The number of a task's workload; -1 if it is not there."""
        key = _key(task.workload())
        places = (k for k, each in enumerate(self._workloads) if each and each.key == key)
        return next(places, -1)

    def measured(self, task: Task) -> list[MeasuredChoice]:
        """What was measured of a task, the fastest first."""
        found = [
            MeasuredChoice(number, task.choice(number), seconds)
            for number, seconds in self.tried(task).items()
            if seconds < inf
        ]
        return sorted(found, key=lambda each: each.seconds)

    def races(self, task: Task) -> Races:
        """What ran in turns with the untuned choice of a task, in the order of the races."""
        found = self._races.get(_key(task.workload()), {})
        if not any(map(is_sketch, found)):
            return found
        # A sketch is of no use without its record.
        known = self.tried(task)
        return {k: races for k, races in found.items() if not is_sketch(k) or k in known}

    def chosen(self, task: Task) -> list[Choice]:
        """The choices that a build takes: the most efficient one, and finer ones that pay.

        Nothing if none is better than the untuned one, in turns with it, or a network was found to
        be better off without.
        """
        front = self._paying(_key(task.workload()), self.front(task))
        return [task.choice(each.number) for each in front]

    def front(self, task: Task) -> list[RacedChoice]:
        """The same by the races of the operator alone, whatever its networks say."""
        return chosen_front(proved(self.races(task)), task.vdevice.num_veus, self.fast_only)

    def networks(self) -> list[NetworkRace]:
        """The networks that ran by records in turns with those without, in the order of races."""
        return list(self._networks)

    def tuned(self, vdevice: VDevice, winograd_tolerance: float) -> Tuned:
        """What a build asks for the choices of an operator."""
        if note := self.no_use(vdevice):
            warnings.warn(f"{self.folder}: {note}", RecordsWarning, stacklevel=2)

        def choices(func: tirx.PrimFunc, constants: frozenset[int]) -> Sequence[Choice]:
            task = Task(func, tuple(sorted(constants)), vdevice, winograd_tolerance)
            return self.chosen(task)

        return choices

    def no_use(self, vdevice: VDevice) -> str:
        """Why none of the records is for a device; empty if some are."""
        known = [workload.origin for workload in self._workloads if workload]
        if not known:
            return "there are no records of any operator here"
        if any(origin == TaskOrigin.of(vdevice) for origin in known):
            return ""
        sources = listed(sorted({origin.source for origin in known}))
        here = TaskOrigin.of(vdevice).source
        return f"records of {counted(len(known), 'operator')} are for {sources}, not for {here}"

    @cached_property
    def _held(self) -> dict[str, list[str]]:
        """The lines of a database in one file."""
        with _reading(self.folder):
            text = self.folder.read_text(errors="replace")
        try:
            held: dict[str, list[str]] = read_as(dict[str, tuple[str, ...]], parse_json(text))
        except ValueError as error:
            raise InputError(
                f"{self.folder}: holds no records of the tuner: {error}; give a folder of "
                "tvm-rammer tune, or a file of tvm-rammer records"
            ) from error
        return {name: list(lines) for name, lines in held.items()}

    @cached_property
    def _seconds(self) -> Mapping[Any, Mapping[int, float]]:
        """By workload and number of a choice; infinite of those that failed."""
        found: dict[Any, dict[int, float]] = {}
        for place, line in enumerate(self._lines(RECORDS), 1):
            try:
                index, (trace, runs, *_) = json.loads(line)
                number, seconds = self._number(trace), sum(map(float, runs)) / len(runs)
                workload = self._workload(index)
            except (ValueError, TypeError, LookupError, StopIteration, ZeroDivisionError):
                self.skipped.append(f"{RECORDS}, line {place}: no record")
                continue
            if workload is not None:
                self._usable.append((RECORDS, line))
                known = found.setdefault(workload, {})
                seconds = seconds if seconds < FAILED_SECONDS else inf
                known[number] = min(seconds, known.get(number, inf))
        return found

    @cached_property
    def _races(self) -> Mapping[Any, Races]:
        """By workload."""
        found: dict[Any, dict[int, list[RacedChoice]]] = {}
        for place, line in enumerate(self._lines(RACES), 1):
            try:
                race: TaskRace = read_as(TaskRace, json.loads(line))
                workload = self._workload(race.workload)
            except (ValueError, LookupError):
                self.skipped.append(f"{RACES}, line {place}: no race")
                continue
            if workload is not None:
                self._usable.append((RACES, line))
                known = found.setdefault(workload, {})
                for each in race.raced:
                    known.setdefault(each.number, []).append(each)
        return found

    @cached_property
    def _networks(self) -> list[NetworkRace]:
        found = []
        for place, line in enumerate(self._lines(NETWORKS), 1):
            try:
                race: NetworkRace = read_as(NetworkRace, json.loads(line))
                known = [self._workload(number) for number in race.workloads]
                known += [self._workload(each.workload) for each in race.taken]
            except (ValueError, LookupError):
                self.skipped.append(f"{NETWORKS}, line {place}: no race of a network")
                continue
            if None not in known:
                self._usable.append((NETWORKS, line))
                found.append(race)
        return found

    @cached_property
    def _left_out(self) -> set[tuple[Any, tuple[int, ...]]]:
        """Workloads and choices that do not pay in a network."""
        return {(self._workload(place), each) for place, each in left_out(self._networks)}

    def workload_lines(self) -> Iterator[tuple[str, Workload | None]]:
        """The lines of workloads, and what each holds."""
        yield from zip(self._lines(WORKLOADS), self._workloads, strict=True)

    def measured_lines(self) -> list[tuple[str, str]]:
        """The lines of records and races that can be used, each with the name of its file."""
        for read in (self._seconds, self._races, self._networks):
            assert read is not None
        return list(self._usable)

    def kept_lines(self) -> list[tuple[str, str]]:
        """Of these, what builds need: the choices that they take, and the races that those won."""
        taken = {
            place: {each.number for each in front}
            for place, workload in enumerate(self._workloads)
            if workload and (front := self._kept(workload))
        }
        found = []
        for name, line in self.measured_lines():
            content = json.loads(line)
            match content:
                case [place, [trace, *_]]:
                    needed = place in taken and self._number(trace) in taken[place]
                case {"workload": place}:
                    needed = place in taken
                case _:
                    # What does not pay in a network is not there any more.
                    needed = False
            if needed:
                found.append((name, line))
        return found

    def _kept(self, workload: Workload) -> list[RacedChoice]:
        """What builds take of a workload."""
        races = self._races.get(workload.key, {})
        front = chosen_front(proved(races), workload.num_veus, self.fast_only)
        return self._paying(workload.key, front)

    def _paying(self, key: Any, front: list[RacedChoice]) -> list[RacedChoice]:
        """The choices of a workload, or none if a network was found to be better off without."""
        return [] if (key, tuple(each.number for each in front)) in self._left_out else front

    def _number(self, trace: Any) -> int:
        """The number of the choice in a trace as JSON: a decision, or that of the trace itself."""
        if is_sketched(trace):
            text = trace_text(trace)
            number = sketch_number(text)
            self._traces[number] = text
            return number
        steps, decisions = trace
        (place,) = (k for k, step in enumerate(steps) if step[0] == "SampleCategorical")
        return next(int(decision) for number, decision in decisions if number == place)

    def _workload(self, index: int) -> Any:
        """The key of a workload; None of one that cannot be read."""
        if not isinstance(index, int) or index < 0:
            raise LookupError(index)
        found = self._workloads[index]
        return found.key if found else None

    @cached_property
    def _workloads(self) -> list[Workload | None]:
        return list(self._read_workloads())

    def _read_workloads(self) -> Iterator[Workload | None]:
        """What every line holds, ``None`` for one that is no workload."""
        for place, line in enumerate(self._lines(WORKLOADS), 1):
            try:
                yield read_workload(line)
            except Exception:
                self.skipped.append(f"{WORKLOADS}, line {place}: no workload")
                yield None

    def _lines(self, name: str) -> list[str]:
        if self.folder.is_file():
            return self._held.get(name, [])
        path = self.folder / name
        with _reading(path), suppress(FileNotFoundError):
            return path.read_text(errors="replace").splitlines()
        return []


def _reading(path: Path) -> AbstractContextManager[None]:
    """Tell why records cannot be read, and what to do."""
    return refusals_told(
        f"{path}: records of the tuner cannot be read",
        "give a folder of tvm-rammer tune, or a file of tvm-rammer records, that you may read",
    )


@dataclass(frozen=True)
class Workload:
    """What identifies a workload, where its records come from, and the vEUs of the device."""

    key: Any
    origin: TaskOrigin
    num_veus: int


def read_workload(line: str) -> Workload:
    """The workload of a line as MetaSchedule writes it; any exception if it is none."""
    _, text = json.loads(line)
    # TVM writes a text behind its length.
    workload = tvm.ir.load_json(base64.b64decode(text)[8:].decode())
    return Workload(_key(workload), TaskOrigin.of_workload(workload), veus_of(workload))


def _key(workload: Any) -> Any:
    structure: Any = tvm_ffi.StructuralKey
    return structure(workload)
