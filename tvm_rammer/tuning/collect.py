"""Records that travel: databases merged into one, filtered, in a folder or in one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_rammer.errors import InputError
from tvm_rammer.tuning.database import (
    NETWORKS,
    RACES,
    RECORDS,
    WORKLOADS,
    Database,
    read_workload,
)
from tvm_rammer.tuning.folder import locked_folder
from tvm_rammer.tuning.task import TaskOrigin
from tvm_rammer.whole_files import refusals_told, write_whole

#: The lines of each file of a database.
Lines = dict[str, list[str]]


def collected(
    databases: Sequence[Database], keep: Callable[[TaskOrigin], bool], needed_only: bool = False
) -> Lines:
    """The lines of one database with what is in several; equal workloads are one.

    Parameters
    ----------
    databases : sequence of Database
    keep : callable
        Whether records of an origin are taken.
    needed_only : bool
        Only what builds need: choices that they take, not all that were tried.
    """
    found: Lines = {WORKLOADS: [], RECORDS: [], RACES: [], NETWORKS: []}
    places: dict[Any, int] = {}
    known: set[str] = set()
    for database in databases:
        lines = database.kept_lines() if needed_only else database.measured_lines()
        used = {json.loads(line)["workload"] for name, line in lines if name == RACES}
        renumbered: dict[int, int] = {}
        for number, (line, workload) in enumerate(database.workload_lines()):
            if workload is None or not keep(workload.origin):
                continue
            if needed_only and number not in used:
                continue
            if workload.key not in places:
                places[workload.key] = len(found[WORKLOADS])
                found[WORKLOADS].append(line)
            renumbered[number] = places[workload.key]
        for name, line in lines:
            content = json.loads(line)
            if not _renumber(content, renumbered):
                continue
            text = json.dumps(content)
            if text not in known:
                known.add(text)
                found[name].append(text)
    return found


def _renumber(content: Any, renumbered: Mapping[int, int]) -> bool:
    """Give what a line is of its new number; False if that is left out."""
    match content:
        case {"workloads": numbers, "taken": taken}:
            if any(number not in renumbered for number in numbers):
                return False
            content["workloads"] = sorted(renumbered[number] for number in numbers)
            for each in taken:
                each["workload"] = renumbered[each["workload"]]
            return True
        case {"workload": number}:
            place: Any = "workload"
        case [number, *_]:
            place = 0
    if number in renumbered:
        content[place] = renumbered[number]
    return number in renumbered


def write_lines(lines: Lines, path: Path) -> None:
    """Write a database: as one file if its name ends in ``.json``, else as a folder.

    Raises
    ------
    InputError
        If it cannot be written, or there is one in the folder.
    """
    with refusals_told(f"{path}: records cannot be written"):
        if path.suffix == ".json":
            write_whole(path, json.dumps(lines, indent=0).encode())
            return
        with locked_folder(path):
            if (path / RECORDS).exists():
                raise InputError(f"{path}: there are records here; choose another folder")
            for name, held in lines.items():
                write_whole(path / name, "".join(f"{line}\n" for line in held).encode())


@dataclass
class OriginCounts:
    """How many records of an origin there are."""

    origin: TaskOrigin
    operators: int = 0
    measurements: int = 0
    races: int = 0


def counts_by_origin(lines: Lines) -> list[OriginCounts]:
    """What is in a database, by device and version, those with most operators first."""
    origins = [read_workload(line).origin for line in lines[WORKLOADS]]
    found = {origin: OriginCounts(origin) for origin in origins}
    for origin in origins:
        found[origin].operators += 1
    for line in lines[RECORDS]:
        found[origins[json.loads(line)[0]]].measurements += 1
    for line in lines[RACES]:
        found[origins[json.loads(line)["workload"]]].races += 1
    return sorted(found.values(), key=lambda each: -each.operators)
