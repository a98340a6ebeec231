"""The folder of a database: one writer at a time, and what a killed one leaves half written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from math import inf
from pathlib import Path

from tvm_rammer.errors import TuningError
from tvm_rammer.tuning.database import NETWORKS, RACES, RECORDS, WORKLOADS
from tvm_rammer.units import counted
from tvm_rammer.whole_files import refusals_told, try_lock, write_whole


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """The folder, made and for this process alone.

    Raises
    ------
    InputError
        If it cannot be written.
    TuningError
        If another process has it.
    """
    with refusals_told(f"{folder}: records cannot be written here", "choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not try_lock(handle):
            raise TuningError(
                f"{folder}: another process is tuning into this folder; "
                "wait for it, or choose another"
            )
        yield
    finally:
        os.close(handle)


def repair(folder: Path) -> list[str]:
    """Take lines out of a database that are not whole, as a process leaves them that is killed.

    Returns
    -------
    list of str
        What was taken out.
    """
    removed: list[str] = []
    workloads = 0
    for name in (WORKLOADS, RECORDS, RACES, NETWORKS):
        path = folder / name
        path.touch()
        text = path.read_text(errors="replace")
        lines = text.splitlines()
        if name == WORKLOADS:
            # A workload's number is its line.
            whole = list(takewhile(_is_json, lines))
            workloads = len(whole)
        else:
            whole = [line for line in lines if _is_json(line) and _workload(line) < workloads]
        if lost := len(lines) - len(whole):
            removed.append(f"{name}: {counted(lost, 'line')}")
        if lost or (text and not text.endswith("\n")):
            write_whole(path, "".join(f"{line}\n" for line in whole).encode())
    return removed


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _workload(line: str) -> float:
    """The last workload that a line is of; one that is not there where it names none."""
    match json.loads(line):
        case {"workload": int(number)} | {"workloads": [*_, int(number)]} | [int(number), *_]:
            return number
    return inf
