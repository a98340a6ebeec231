"""Tuning by MetaSchedule: records, what a build takes by them, and what goes wrong."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.errors import InputError, TuningError
from tvm_rammer.options import Options
from tvm_rammer.tuning.database import RECORDS, WORKLOADS, Database
from tvm_rammer.tuning.model import tasks_of
from tvm_rammer.tuning.session import Progress
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


def test_the_untuned_choice_is_measured_first(session):
    database, told = session
    assert told[0].trials == 1
    assert told[0].best == told[0].untuned > 0
    assert told[-1].best <= told[-1].untuned
    assert len(database) >= 2
    assert not database.skipped


def test_a_build_takes_the_fastest_choice(folder):
    """Records are made to say that one choice is far faster than any other."""
    lines = (folder / RECORDS).read_text().splitlines()
    record = next(r for r in map(json.loads, lines) if number_of(r) > 0)
    record[1][1] = [1e-12]
    (folder / RECORDS).write_text("\n".join([*lines, json.dumps(record)]) + "\n")
    task = tasks()[record[0]]
    chosen = Database(folder).chosen(task)
    assert chosen[0].text == task.choices[number_of(record)].text
    library = tvm_rammer.build(model(), database=Database(folder), policy="sequential")
    assert chosen[0].text.split(": ")[1].split(",")[0] in kernels(library)
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
    target = resolve_target(None)
    loaded = tvm_rammer.load_model(model())
    return [each.task for each in tasks_of(loaded.module, target, Options())]


def test_nothing_is_chosen_that_is_not_faster(folder):
    lines = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    for record in lines:
        record[1][1] = [1e-6 if number_of(record) == 0 else 0.99e-6]
    (folder / RECORDS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with_records = kernels(tvm_rammer.build(model(), database=Database(folder)))
    assert with_records == kernels(tvm_rammer.build(model()))


def kernels(library) -> list[str]:
    (program,) = library.programs.values()
    return [kernel.tiling for kernel in program.kernels]


def number_of(record) -> int:
    steps, decisions = record[1][0]
    (place,) = (k for k, step in enumerate(steps) if step[0] == "SampleCategorical")
    return next(number for k, number in decisions if k == place)


def test_a_session_goes_on(folder):
    """Also behind a line that a killed process has left half written."""
    before = len(Database(folder))
    with open(folder / RECORDS, "a") as records:
        records.write('[0, [[["SampleCat')
    told: list[Progress] = []
    database = tvm_rammer.tune(model(), trials=3, work_dir=folder, watch=told.append)
    assert len(database) >= before
    assert not database.skipped
    assert all(progress.untuned == told[0].untuned for progress in told)


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


def refusal(kind, *arguments, **options) -> str:
    with pytest.raises(kind) as caught:
        tvm_rammer.tune(*arguments, **options)
    return str(caught.value)


def test_no_trials(tmp_path):
    said = refusal(InputError, model(), trials=0, work_dir=tmp_path)
    assert said == "trials is 0: it must be a whole number of at least 1"


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
    assert said == "the target is not this machine, but cortex-a72 CPU: tune where it is"


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
