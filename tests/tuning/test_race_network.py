"""Operators that gain by themselves and not in their network stay as they are without tuning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from test_tune import entry, kernels, model
from tvm.s_tir import meta_schedule as ms

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.options import Options
from tvm_rammer.tuning import race_network
from tvm_rammer.tuning.collect import collected, write_lines
from tvm_rammer.tuning.database import NETWORKS, RACES, RECORDS, WORKLOADS, Database, TaskRace
from tvm_rammer.tuning.folder import repair
from tvm_rammer.tuning.journal import Journal, Progress, read_log
from tvm_rammer.tuning.model import tasks_of
from tvm_rammer.tuning.networks import NetworkRace, TakenChoices, left_out
from tvm_rammer.tuning.race_network import keep_what_pays, take_turns
from tvm_rammer.tuning.session import WeightedTask
from tvm_rammer.tuning.space import trace_of
from tvm_rammer.tuning.status import tuning_status

TARGET = resolve_target(None)


def race(workloads: Sequence[int], *taken: tuple[int, int, bool]) -> NetworkRace:
    made = (TakenChoices(workload, (number,), kept) for workload, number, kept in taken)
    return NetworkRace(tuple(workloads), tuple(made), (0.9, 0.8, 0.95), 1e-3)


def test_the_last_race_of_a_network_counts():
    first, second = race([0, 1], (0, 3, False), (1, 4, False)), race([0, 1], (0, 3, True))
    assert list(left_out([first])) == [(0, (3,)), (1, (4,))]
    assert list(left_out([first, second])) == []
    assert list(left_out([second, first])) == [(0, (3,)), (1, (4,))]


def test_what_one_network_leaves_out_no_other_takes():
    """An operator of two networks must make neither slower."""
    assert list(left_out([race([0], (0, 3, False)), race([0, 1], (0, 3, True))])) == [(0, (3,))]


def test_what_came_out_in_words():
    assert race([0, 1], (0, 3, True), (1, 4, False)).words() == (
        "the network with 1 tuned operators takes 0.900x (0.80 to 0.95) of its time without "
        "records, and 1 that did not pay stay untuned"
    )
    assert race([0], (0, 3, False)).words() == (
        "the network keeps its untuned operators: tuned ones took 0.900x (0.80 to 0.95) of its "
        "time without records"
    )


def tasks() -> list[WeightedTask]:
    return tasks_of(tvm_rammer.load_model(model()).module, Options().resolve(TARGET))[0]


def winner(task: WeightedTask) -> int:
    """A choice with as many tiles as the untuned one, or more."""
    least = task.task.num_tiles(0)
    return next(k for k in range(1, 99) if task.task.num_tiles(k) >= least)


def write_winners(folder: Path) -> Database:
    """Both operators won their races, the first by more."""
    kept = ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
    with TARGET, open(folder / RACES, "w") as races:
        for place, (each, ratio) in enumerate(zip(tasks(), (0.5, 0.8), strict=True)):
            workload = kept.commit_workload(each.task.workload())
            trace = trace_of(each.task.workload(), len(each.task.choices), 0)
            kept.commit_tuning_record(ms.database.TuningRecord(trace, workload, [1e-6], TARGET, []))
            raced = (entry(each.task, 0, 1.0), entry(each.task, winner(each), ratio))
            races.write(2 * TaskRace(place, 1e-6, raced).line())
    return Database(folder)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return write_winners(tmp_path)


def kept_by(database: Database, *ratios: float) -> list[list[str]]:
    """What a build takes of each operator, after its network took so much time in each race."""
    left = list(ratios)

    def turns(before: object, after: object) -> list[tuple[float, float]]:
        ratio = left.pop(0)
        return [(1.0, ratio)] * 9

    folder = database.folder
    journal = Journal(folder, lambda progress: None)
    loaded = tvm_rammer.load_model(model())
    keep_what_pays(loaded, TARGET, None, tasks(), Database(folder), journal, turns)
    assert not left
    return [[c.text for c in Database(folder).chosen(each.task)] for each in tasks()]


def test_all_pay(database):
    first, second = kept_by(database, 0.9)
    assert first and second
    told = [line["network"] for line in read_log(database.folder) if "network" in line]
    assert told == [
        "the network with 2 tuned operators takes 0.900x (0.90 to 0.90) of its time without records"
    ]


def test_the_half_with_the_largest_gains_pays(database):
    first, second = kept_by(database, 1.1, 0.9)
    assert first and not second


def test_nothing_pays(database):
    assert kept_by(database, 1.1, 1.01) == [[], []]
    library = tvm_rammer.build(model(), database=Database(database.folder), policy="sequential")
    assert kernels(library) == kernels(tvm_rammer.build(model(), policy="sequential"))


def test_what_is_known_is_not_raced_again(database):
    kept_by(database, 1.1, 0.9)
    kept_by(database)
    assert len((database.folder / NETWORKS).read_text().splitlines()) == 1


def test_a_network_that_cannot_run(database, monkeypatch):
    """What was tuned stays."""

    def build(*arguments: object, **options: object) -> None:
        raise ValueError("no\nreason at all")

    monkeypatch.setattr(race_network, "build", build)
    first, second = kept_by(database)
    assert first and second
    assert [line["network"] for line in read_log(database.folder)] == [
        "the network could not run in turns with the one without: reason at all"
    ]


def test_the_status_has_the_last_word(tmp_path):
    journal = Journal(tmp_path, lambda progress: None)
    journal.tell(Progress("matmul", 1, 1, 1e-6, 1e-6), 1)
    assert tuning_status(tmp_path).network == ""
    journal.network("first")
    journal.network("last")
    assert tuning_status(tmp_path).network == "last"


def test_turns_are_taken():
    """Each run begins every other round, and a sample of a short run is many."""
    calls: list[str] = []
    found = take_turns(lambda: calls.append("a"), lambda: calls.append("b"))
    assert len(found) == 101
    assert all(first > 0 and second > 0 for first, second in found)
    assert calls.count("a") > 1000 and calls.count("b") > 1000
    blocks = [name for name, _ in groupby(calls)]
    # One of each to count, and one at each end: between these, two rounds share a block.
    assert len(blocks) == 1 + 1 + 100 + 1


def test_races_of_networks_travel(database, tmp_path):
    """With the workloads' new numbers; without one that they name, not at all."""
    kept_by(database, 1.1, 0.9)
    again = Database(database.folder)
    write_lines(collected([again], lambda origin: True), tmp_path / "all.json")
    (there,) = Database(tmp_path / "all.json").networks()
    assert there == again.networks()[0]
    assert collected([again], lambda origin: False)[NETWORKS] == []


def test_lines_that_are_none(database):
    kept_by(database, 1.1, 0.9)
    folder = database.folder
    with open(folder / NETWORKS, "a") as networks:
        networks.write('{"workloads": [0, 7], "taken": [], "ratio": [1, 1, 1], "seconds": 1}\n{"')
    again = Database(folder)
    assert len(again.networks()) == 1
    assert again.skipped == [f"{NETWORKS}, line {k}: no race of a network" for k in (2, 3)]
    assert repair(folder) == [f"{NETWORKS}: 2 lines"]
    assert len((folder / NETWORKS).read_text().splitlines()) == 1
