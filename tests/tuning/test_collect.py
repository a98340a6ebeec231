"""Records of which only what builds need travels."""

from __future__ import annotations

import json
from pathlib import Path

from some_records import product_task, write_records

from tvm_rammer.backend import vdevice_for
from tvm_rammer.tuning.collect import collected, write_lines
from tvm_rammer.tuning.database import RACES, RECORDS, WORKLOADS, Database, TaskRace
from tvm_rammer.tuning.fronts import RacedChoice

UNTUNED = RacedChoice(0, 1, "", (1.0, 1.0, 1.0))
FASTER = RacedChoice(1, 2, "", (0.5, 0.5, 0.5))


def records_with_a_winner(folder: Path) -> Path:
    """Two products; the first one has a choice that won two races."""
    write_records(folder, {vdevice_for().name: [8, 16]})
    with open(folder / RACES, "a") as races:
        for seconds in (1e-6, 2e-6):
            races.write(TaskRace(0, seconds, (UNTUNED, FASTER)).line())
    return folder


def everything(_: object) -> bool:
    return True


def test_what_builds_need(tmp_path):
    """The winner's operator and its races: neither the other operator, nor what was tried."""
    found = Database(records_with_a_winner(tmp_path / "records"))
    lines = collected([found], everything, needed_only=True)
    assert [len(lines[name]) for name in (WORKLOADS, RECORDS, RACES)] == [1, 0, 3]
    write_lines(lines, tmp_path / "needed.json")
    device = vdevice_for().name
    small = Database(tmp_path / "needed.json")
    for columns in (8, 16):
        task = product_task(columns, device)
        assert small.front(task) == found.front(task)
    assert small.front(product_task(8, device)) == [FASTER]


def test_what_does_not_pay_in_a_network_stays_here(tmp_path):
    folder = records_with_a_winner(tmp_path / "records")
    taken = {"workload": 0, "numbers": [1], "kept": False}
    race = {"workloads": [0, 1], "taken": [taken], "ratio": [1.1, 1.0, 1.2], "seconds": 1e-3}
    (folder / "database_network.json").write_text(json.dumps(race) + "\n")
    lines = collected([Database(folder)], everything, needed_only=True)
    assert not any(lines.values())
