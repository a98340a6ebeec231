"""Records of MetaSchedule for GPUs: candidates of their operators, or a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm
from cuda_models import TARGET, outputs, worst
from emulated_cuda import ORDERS, looking_for_races, run_emulated
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from tvm.s_tir import meta_schedule as ms

import tvm_rammer
from tvm_rammer.errors import InputError
from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.tuning.meta_schedule_records import MetaScheduleRecords, operators_to_tune


def doubled() -> ModelProto:
    """Two operators of 4 x 240 elements, which no rule of ours cuts into blocks of 120 threads."""
    graph = GraphBuilder("doubled")
    for number in range(2):
        x = graph.input(f"x{number}", (4, 240))
        graph.output(f"y{number}", graph.op("Sigmoid", graph.op("Add", x, x)))
    return graph.build()


def a_thread_for_each_column(schedule: Any, threads: int) -> None:
    """Every row a block; so many threads have some columns each."""
    (block,) = (b for b in schedule.get_child_blocks(schedule.get_sblock("root")))
    rows, columns = schedule.get_loops(block)
    split, _ = schedule.split(columns, [threads, None])
    schedule.bind(rows, "blockIdx.x")
    schedule.bind(split, "threadIdx.x")


def database(folder: Path, records: dict[int, float], arch: str = "sm_90") -> MetaScheduleRecords:
    """As MetaSchedule writes it: for numbers of threads the seconds that somebody measured."""
    (func,) = operators_to_tune(doubled(), TARGET).values()
    kept = ms.database.JSONDatabase(work_dir=str(folder))
    workload = kept.commit_workload(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    for threads, seconds in records.items():
        schedule = tvm.s_tir.Schedule(workload.mod)
        inlined = schedule.get_child_blocks(schedule.get_sblock("root"))
        for block in inlined[:-1]:
            schedule.compute_inline(block)
        a_thread_for_each_column(schedule, threads)
        record = ms.database.TuningRecord(schedule.trace, workload, [seconds], target, [])
        kept.commit_tuning_record(record)
    return MetaScheduleRecords(folder)


def kernels(library: tvm_rammer.Library) -> list[Any]:
    return [kernel for program in library.programs.values() for kernel in program.kernels]


def error_and_tilings(folder: Path) -> tuple[float, list[tuple[str, str]]]:
    model = doubled()
    inputs = random_inputs(model)
    expected = ReferenceEvaluator(model).run(None, inputs)
    with looking_for_races():
        library = tvm_rammer.build(model, TARGET, database=MetaScheduleRecords(folder))
    error = max(worst(outputs(library, inputs, order), expected) for order in ORDERS)
    return error, [(kernel.origin, kernel.tiling) for kernel in kernels(library)]


def test_a_record_is_run(tmp_path):
    database(tmp_path, {120: 2e-6})
    error, chosen = run_emulated(error_and_tilings, tmp_path)
    assert error < 1e-5
    assert chosen == [("record", "4 tiles of 120 threads")]


def test_the_fastest_that_a_resident_block_can_run_is_taken_and_the_report_says_why(tmp_path):
    records = database(tmp_path, {512: 1e-6, 60: 3e-6, 120: 2e-6})
    library = tvm_rammer.build(doubled(), TARGET, database=records)
    (kernel,) = kernels(library)
    assert kernel.tiling == "4 tiles of 120 threads"
    assert "the record of 1.0 us is not used: " in str(library.report)
    assert "512 threads" in str(library.report)


def test_without_a_record_that_can_be_run_there_are_our_own(tmp_path):
    records = database(tmp_path, {512: 1e-6})
    (kernel,) = kernels(tvm_rammer.build(doubled(), TARGET, database=records))
    assert kernel.origin != "record" and "is not used" in kernel.note


def test_records_that_failed_are_none(tmp_path):
    records = database(tmp_path, {120: 1e10})
    (kernel,) = kernels(tvm_rammer.build(doubled(), TARGET, database=records))
    assert kernel.origin != "record" and kernel.note is None


def test_records_of_another_architecture_are_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        tvm_rammer.build(doubled(), TARGET, database=database(tmp_path, {120: 2e-6}, "sm_80"))
    assert str(caught.value) == (
        f"{tmp_path}: its records are for cuda sm_80, not for cuda sm_90: tune for that target"
    )


def test_processors_take_records_of_their_own_tuner(tmp_path):
    with pytest.raises(InputError, match=r"records of MetaSchedule are not taken for .*Database"):
        tvm_rammer.build(doubled(), database=database(tmp_path, {120: 2e-6}))


def test_a_folder_without_a_database(tmp_path):
    with pytest.raises(InputError) as caught:
        MetaScheduleRecords(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: there is no database_workload.json; give the folder of a JSONDatabase of "
        "MetaSchedule"
    )


def test_what_is_no_database(tmp_path):
    for name in ("database_workload.json", "database_tuning_record.json"):
        (tmp_path / name).write_text("no record\n")
    with pytest.raises(InputError, match="holds no database of MetaSchedule: "):
        tvm_rammer.build(doubled(), TARGET, database=MetaScheduleRecords(tmp_path))
