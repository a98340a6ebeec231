"""Tuning by MetaSchedule: records, what a build takes by them, and what goes wrong."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import math
import os
import re
import shutil
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import lucky_choices
import numpy as np
import onnx
import pytest
import tvm
import wrong_choices
from onnx import TensorProto, helper, numpy_helper

import tvm_rammer
from tvm_rammer.errors import InputError, TuningError
from tvm_rammer.options import Options
from tvm_rammer.tuning import bench
from tvm_rammer.tuning.database import (
    RACES,
    RECORDS,
    WORKLOADS,
    Database,
    RecordsWarning,
    TaskRace,
)
from tvm_rammer.tuning.fronts import RacedChoice
from tvm_rammer.tuning.journal import Progress, read_log
from tvm_rammer.tuning.model import tasks_of
from tvm_rammer.tuning.task import Task

TRIALS = 6


def model() -> onnx.ModelProto:
    """Two products side by side, of the same sizes."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((2, 96, 64)).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["a"]),
            helper.make_node("MatMul", ["x", "w1"], ["b"]),
            helper.make_node("Mul", ["a", "b"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(weight, f"w{k}") for k, weight in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> tuple[Database, list[Progress]]:
    """What a short session left, and what it told."""
    told: list[Progress] = []
    folder = tmp_path_factory.mktemp("records")
    return tvm_rammer.tune(model(), trials=TRIALS, work_dir=folder, watch=told.append), told


@pytest.fixture
def folder(session, tmp_path):
    """A copy of the records."""
    return shutil.copytree(session[0].folder, tmp_path / "records")


def test_an_interrupt_that_tvm_swallows_ends_the_session(tmp_path):
    def swallow(progress: Progress) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tvm_rammer.tune(model(), trials=TRIALS, work_dir=tmp_path, watch=swallow)
    finally:
        signal.signal(signal.SIGINT, before)
    # What was measured before it is kept.
    assert 1 <= len(Database(tmp_path)) < TRIALS


def test_the_untuned_choice_is_measured_first(session):
    database, told = session
    assert told[0].trials == 1
    assert told[0].best == told[0].untuned > 0
    assert told[-1].best <= told[-1].untuned
    assert len(database) >= 2
    assert not database.skipped


def raced(folder, number: int, ratio: float) -> None:
    """Let a choice have taken so much of the untuned one's time, twice, for all operators."""
    races = [
        TaskRace(k, 1e-6, (entry(task, 0, 1.0), entry(task, number, ratio)))
        for k, task in enumerate(tasks())
    ]
    (folder / RACES).write_text("".join(race.line() for race in races * 2))


def entry(task: Task, number: int, ratio: float) -> RacedChoice:
    alike = task.tuner.alike(task.choice(number))
    return RacedChoice(number, task.num_tiles(number), alike, (ratio, ratio, ratio))


def test_a_build_takes_a_choice_that_won(folder):
    task = tasks()[0]
    number = next(k for k in range(1, 99) if task.num_tiles(k) >= task.num_tiles(0))
    raced(folder, number, 0.5)
    assert [choice.text for choice in Database(folder).chosen(task)] == [task.choice(number).text]
    library = tvm_rammer.build(model(), database=Database(folder), policy="sequential")
    assert task.choice(number).text.split(": ")[1].split(",")[0] in kernels(library)
    x = np.random.default_rng(1).standard_normal((1, 96)).astype("float32")
    outputs = []
    for each in (library, tvm_rammer.build(model())):
        module = each.create()
        module.set_input("x", x)
        module.run()
        outputs.append(module.get_output(0).numpy())
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-4)


def tasks() -> list[Task]:
    """The operators of the model, in the order of their workloads."""
    loaded = tvm_rammer.load_model(model())
    return [each.task for each in tasks_of(loaded.module, Options().resolve())[0]]


def test_nothing_is_chosen_that_is_not_faster(folder):
    task = tasks()[0]
    raced(folder, next(k for k in range(1, 99) if task.num_tiles(k) <= task.num_tiles(0)), 0.99)
    with_records = tvm_rammer.build(model(), database=Database(folder), policy="sequential")
    assert kernels(with_records) == kernels(tvm_rammer.build(model(), policy="sequential"))


def kernels(library) -> list[str]:
    (program,) = library.programs.values()
    return [kernel.tiling for kernel in program.kernels]


def test_a_session_goes_on(folder):
    """Also behind a line that a killed process has left half written; nothing is tried again."""
    with open(folder / RECORDS, "a") as records:
        records.write('[0, [[["SampleCat')
    told: list[Progress] = []
    database = tvm_rammer.tune(model(), trials=TRIALS + 3, work_dir=folder, watch=told.append)
    assert tried(database) == told[-1].trials == TRIALS + 3
    assert not database.skipped
    assert len((folder / RECORDS).read_text().splitlines()) == TRIALS + 3
    notes = [line["note"] for line in read_log(folder) if "note" in line]
    assert notes == [f"taken out: {RECORDS}: 1 line"]


def test_a_finished_session_measures_nothing(folder):
    before = (folder / RECORDS).read_text()
    tvm_rammer.tune(model(), trials=TRIALS, work_dir=folder)
    assert (folder / RECORDS).read_text() == before


def tried(database: Database) -> int:
    return sum(len(database.tried(task)) for task in tasks())


def test_choices_that_compute_something_else_are_dropped(tmp_path, monkeypatch):
    """Odd ones give twice the result."""
    helpers = Path(wrong_choices.__file__).parent
    monkeypatch.setenv("PYTHONPATH", f"{helpers}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(bench, "build_choices", wrong_choices.build_wrong_choices)
    database = tvm_rammer.tune(model(), trials=10, work_dir=tmp_path)
    found = database.tried(tasks()[0]) | database.tried(tasks()[1])
    assert {number % 2 for number, seconds in found.items() if seconds == math.inf} == {1}
    assert all(seconds == math.inf for number, seconds in found.items() if number % 2)
    named = [line["error"] for line in read_log(tmp_path) if "error" in line]
    assert len(named) == sum(s == math.inf for t in tasks() for s in database.tried(t).values())
    assert re.fullmatch(
        # Of the product that is multiplied by the other, one number is too small to tell.
        r"matmul: [^:]*: wrong numbers: result 0 is \S+ at \[0, 0\] and should be \S+ "
        r"\(6[34] of 64 are wrong\)",
        named[0],
    )


def test_who_was_lucky_once_is_not_taken(tmp_path, monkeypatch):
    """What wins a race runs in another one before a build takes it."""
    helpers = Path(lucky_choices.__file__).parent
    monkeypatch.setenv("PYTHONPATH", f"{helpers}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(bench, "run_choices", lucky_choices.run_lucky_choices)
    database = tvm_rammer.tune(model(), trials=4, work_dir=tmp_path)
    races = [database.races(task) for task in tasks()]
    won = [each[0] for some in races for number, each in some.items() if number > 0]
    assert any(one.ratio == (0.5, 0.5, 0.5) for one in won)
    assert max(len(each) for some in races for number, each in some.items() if number > 0) == 2
    assert [database.chosen(task) for task in tasks()] == [[], []]


def test_lines_that_are_no_records_are_named(folder):
    with open(folder / RECORDS, "a") as records:
        records.write("nonsense\n[7, [[[], []], [1.0]]]\n[0, [[[], []], []]]\n")
    with open(folder / WORKLOADS, "a") as workloads:
        workloads.write('["1", "AAAA"]\n')
    database = Database(folder)
    count = len(database)
    lines = len((folder / RECORDS).read_text().splitlines())
    assert database.skipped == [
        f"{WORKLOADS}, line 3: no workload",
        *(f"{RECORDS}, line {number}: no record" for number in range(lines - 2, lines + 1)),
    ]
    assert count >= 2


def test_lines_that_are_no_races_are_named(folder):
    raced(folder, 1, 0.5)
    with open(folder / RACES, "a") as races:
        races.write('{"workload": 0}\n')
    database = Database(folder)
    assert database.chosen(tasks()[0])
    assert database.skipped == [f"{RACES}, line 5: no race"]


def test_records_of_another_device_or_tvm(folder, monkeypatch):
    """They are ignored with a note."""
    vdevice = tasks()[0].vdevice
    assert Database(folder).no_use(vdevice) == ""
    here = vdevice.name
    other = replace(vdevice, name="a vacuum tube")
    said = f"records of 2 operators are for {here} with TVM {tvm.__version__}, not for "
    with pytest.warns(RecordsWarning) as caught:
        Database(folder).tuned(other, 0.0)
    assert str(caught[0].message) == (f"{folder}: {said}a vacuum tube with TVM {tvm.__version__}")
    monkeypatch.setattr(tvm, "__version__", "9.9")
    assert Database(folder).no_use(vdevice) == f"{said}{here} with TVM 9.9"


def refusal(kind, *arguments, **options) -> str:
    with pytest.raises(kind) as caught:
        tvm_rammer.tune(*arguments, **options)
    return str(caught.value)


def test_no_trials(tmp_path):
    said = refusal(InputError, model(), trials=0, work_dir=tmp_path)
    assert said == "trials is 0: it must be a whole number of at least 1"


@pytest.mark.parametrize("seed", ["a", -1, True, 1.0, 2**31])
def test_no_seed(tmp_path, seed):
    said = refusal(InputError, model(), trials=1, work_dir=tmp_path, seed=seed)
    assert said == f"seed is {seed!r}: it must be a whole number from 0 to 2,147,483,647"


def test_no_tracker(tmp_path):
    said = refusal(InputError, model(), trials=1, work_dir=tmp_path, tracker="127.0.0.1:9")
    assert said == (
        "tracker is '127.0.0.1:9': give a Tracker, such as "
        "tvm_rammer.Tracker('127.0.0.1', 9190, 'the key of its servers')"
    )


@pytest.mark.parametrize(
    ("given", "advice"), [("records", "'records'"), (Path("r"), "'r'"), ([], "'folder'")]
)
def test_no_records_but_their_path(given, advice):
    with pytest.raises(InputError) as caught:
        tvm_rammer.build(model(), database=given)
    assert str(caught.value) == (
        f"database is {given!r}: give what tvm_rammer.tune returned, or "
        f"tvm_rammer.Database({advice})"
    )


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(bench, "write_task", full)
    with pytest.raises(TuningError) as refused:
        tvm_rammer.tune(model(), trials=2, work_dir=tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: No space left on device; make room, and tune again: it goes on where it was"
    )


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    said = refusal(InputError, model(), trials=1, work_dir=tmp_path / "file" / "records")
    assert said == (
        f"{tmp_path}/file/records: records cannot be written here: Not a directory; "
        "choose another folder"
    )


def test_two_sessions_in_one_folder(tmp_path):
    handle = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    said = refusal(TuningError, model(), trials=1, work_dir=tmp_path)
    os.close(handle)
    assert said == (
        f"{tmp_path}: another process is tuning into this folder; wait for it, or choose another"
    )


def test_a_library_is_missing(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "xgboost" else find(name)
    )
    said = refusal(TuningError, model(), trials=1, work_dir=tmp_path)
    assert said == "tuning needs xgboost: pip install 'tvm-rammer[tune]'"


def test_another_machine(tmp_path):
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}
    said = refusal(TuningError, model(), target, trials=1, work_dir=tmp_path)
    assert said == (
        "the target is not this machine, but cortex-a72 CPU: tune where it is, or give a tracker "
        "of such machines"
    )


def test_a_back_end_without_a_tuner():
    from tvm_rammer.backend.registry import backend_named
    from tvm_rammer.tuning.task import tuner_of

    with pytest.raises(TuningError, match=r"back end .interpret. offers nothing to tune"):
        tuner_of(backend_named("interpret"))


def test_nothing_to_tune(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    said = refusal(TuningError, made, trials=1, work_dir=tmp_path)
    assert said == "no operator of the model has configurations to choose from"


def test_a_folder_without_records(tmp_path):
    with pytest.raises(InputError) as caught:
        Database(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: there are no records of the tuner here (no {RECORDS}); "
        "make them by tvm_rammer.tune or tvm-rammer tune"
    )
