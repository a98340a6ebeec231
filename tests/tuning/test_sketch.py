"""The sketch space: schedules by MetaSchedule's own rules, as choices beside those of templates."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
import tvm
from close import assert_close
from kernel_runs import HOST, TARGET, constant, legalized_func, numbers, run_prim_func
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.s_tir import meta_schedule as ms

import tvm_rammer
from tvm_rammer.errors import InputError, TuningError
from tvm_rammer.kernel.scheduled import UNTUNED
from tvm_rammer.kernel.split import num_tiles, root_nests, split_into_stages
from tvm_rammer.options import Options
from tvm_rammer.tuning import session
from tvm_rammer.tuning.bench import without_intrinsics
from tvm_rammer.tuning.collect import collected, write_lines
from tvm_rammer.tuning.database import RACES, RECORDS, WORKLOADS, Database, TaskRace
from tvm_rammer.tuning.fronts import RacedChoice
from tvm_rammer.tuning.model import tasks_of
from tvm_rammer.tuning.search import Search
from tvm_rammer.tuning.sketch_choice import is_sketch
from tvm_rammer.tuning.sketch_space import TILES, TileLoops, is_sketchable, most_tiles
from tvm_rammer.tuning.task import Task

OP = relax.op
NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
TRIALS = 2 + 4


def product():
    x, w = numbers((6, 70)), numbers((70, 136), seed=1)
    return legalized_func(lambda x: OP.nn.relu(OP.matmul(x, constant(w))), x), [x, w], (1,)


def convolution():
    x, w = numbers((1, 14, 14, 24)), numbers((40, 3, 3, 24), seed=1)
    func = legalized_func(lambda x: OP.nn.conv2d(x, constant(w), padding=(1, 1, 1, 1), **NHWC), x)
    return func, [x, w], (1,)


def pooling():
    x = numbers((1, 15, 15, 24))
    return legalized_func(lambda x: OP.nn.max_pool2d(x, (3, 3), (2, 2), layout="NHWC"), x), [x], ()


def softmax():
    x = numbers((6, 120))
    return legalized_func(lambda x: OP.nn.softmax(x), x), [x], ()


def argmax():
    x = numbers((4, 64))
    return legalized_func(lambda x: OP.argmax(x, axis=1), x), [x], ()


def proposals(task: Task, space: str = "sketch") -> list[int]:
    """The numbers of what the search proposes first."""
    model = ms.cost_model.RandomModel()
    with without_intrinsics():
        search = Search(space, "operator", task, TARGET, model, [], 1)
        return [number for number, _ in search.proposed(())]


@pytest.mark.parametrize("make", [product, convolution, pooling, softmax, argmax])
def test_sketches_agree(make):
    """Also those whose weights are laid out anew; parts of them run in any order."""
    func, inputs, constants = make()
    task = Task(func, constants, HOST, 0.0)
    want = run_prim_func(func, inputs, list(constants)).outputs[0]
    found = proposals(task)
    assert len(set(found)) == len(found) >= 2
    assert all(map(is_sketch, found))
    for seed, number in enumerate(found[:4]):
        choice = task.choice(number)
        run = run_prim_func(
            func, inputs, list(constants), seed=seed, tuned=lambda *_, c=choice: [c]
        )
        assert run.kernel.stages[-1].kernel.origin == "sketch"
        assert_close(run.outputs[0], want, 2e-4)


def test_weights_are_laid_out_as_the_loops_read_them():
    func, _, constants = convolution()
    task = Task(func, constants, HOST, 0.0)
    made = [task.choice(number).emit() for number in proposals(task)]
    packed = [packing for each in made for _, packing in each.packings]
    assert len(packed) == len(made)
    weight = numbers((40, 3, 3, 24), seed=1)
    for packing in packed:
        array = packing(weight)
        assert array.shape == packing.shape(weight.shape)
        assert np.array_equal(np.sort(array, axis=None), np.sort(weight, axis=None))
    assert len({packing.packed for packing in packed}) > 1
    assert not [p for each in made for p in split_into_stages(each.func).scratch[1:]]


@pytest.mark.parametrize("make", [product, convolution, argmax])
def test_a_sketch_has_one_number_in_memory_and_on_disk(make, tmp_path):
    """Also where weights are laid out anew: their layout is a text within the record."""
    func, _, constants = make()
    task = Task(func, constants, HOST, 0.0)
    with without_intrinsics():
        search = Search("sketch", "operator", task, TARGET, ms.cost_model.RandomModel(), [], 1)
        found = search.proposed(())
    kept = ms.database.JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    workload = kept.commit_workload(task.workload())
    for _, each in found:
        record = ms.database.TuningRecord(each.sch.trace, workload, [1e-3], TARGET, [])
        kept.commit_tuning_record(record)
    assert set(Database(tmp_path).tried(task)) == {number for number, _ in found}


def test_no_nest_has_more_rtasks_than_the_cap():
    """The number of rTasks is a knob below it; each nest has one loop of them, the outermost."""
    x = numbers((1, 97, 97, 32))
    func = legalized_func(lambda x: OP.nn.max_pool2d(x, (2, 2), layout="NHWC"), x)
    task = Task(func, (), HOST, 0.0)
    found = [task.num_tiles(number) for number in proposals(task)]
    assert max(found) <= most_tiles(HOST) < 97 * 97
    assert len(set(found)) > 2
    few = tvm.s_tir.Schedule(_annotated(func, 6))
    assert TileLoops(6, HOST.l2_bytes).apply(few)
    (nest,) = root_nests(few.mod["main"].body)
    assert num_tiles(nest) == 6


def test_an_rtask_has_no_more_memory_than_the_device_has_near_a_core():
    func, _, _ = softmax()
    schedule = tvm.s_tir.Schedule(_annotated(func, 4))
    # Of each row the largest number, the sum, and all of its powers are between the nests.
    assert TileLoops(4, 0).apply(schedule.copy())
    (_, powers, sums, last) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.reverse_compute_at(sums, schedule.get_loops(powers)[0])
    schedule.reverse_compute_at(last, schedule.get_loops(powers)[0])
    assert TileLoops(4, 121 * 4).apply(schedule.copy())
    assert not TileLoops(4, 121 * 4 - 1).apply(schedule)


def _annotated(func, tiles: int):
    schedule = tvm.s_tir.Schedule(tvm.s_tir.renew_defs(func).with_attr("global_symbol", "main"))
    root = schedule.get_sblock("root")
    schedule.annotate(root, "tvm_rammer.tiles", tiles)
    schedule.annotate(root, "tvm_rammer.steps", 1)
    return schedule.mod


def test_what_is_scheduled_has_no_sketches():
    func, _, _ = product()
    assert is_sketchable(func)
    assert not is_sketchable(func.with_attr("tirx.is_scheduled", True))


def test_a_trace_of_another_operator_is_refused():
    task = Task(*(product()[k] for k in (0, 2)), HOST, 0.0)
    (number, *_) = proposals(task)
    other = Task(softmax()[0], (), HOST, 0.0)
    other.known.traces[number] = task.known.traces[number]
    with pytest.raises(TuningError, match="a record of a sketch is none of this operator"):
        other.choice(number)


def model() -> onnx.ModelProto:
    """A product, and what no template lists configurations for."""
    weight = np.random.default_rng(0).standard_normal((96, 64)).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("ArgMax", ["y"], ["z"], axis=1),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 96])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 64]),
            helper.make_tensor_value_info("z", TensorProto.INT64, [4, 1]),
        ],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tasks(space: str) -> list[Task]:
    spaces = ("template", "sketch") if space == "both" else (space,)
    loaded = tvm_rammer.load_model(model())
    found = tasks_of(loaded.module, Options().resolve(), spaces)[0]
    return [each.task for each in found]


@pytest.fixture(scope="module", autouse=True)
def networks_stay_as_they_are() -> Iterator[None]:
    """They have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tvm_rammer.tuning.model, "keep_what_pays", lambda *args: None)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a short session left: a choice of each of the product's spaces, and of the other."""
    path, turns = tmp_path_factory.mktemp("records"), itertools.cycle([0, 1, 0, 0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "AT_ONCE", 1)
        patch.setattr(session, "next_task", lambda progress, weights: next(turns))
        tvm_rammer.tune(model(), trials=TRIALS, space="both", work_dir=path)
    return path


def sketches(database: Database, task: Task) -> list[int]:
    return [k for k, seconds in database.tried(task).items() if is_sketch(k) and seconds < math.inf]


def test_an_operator_without_a_template_gets_records(folder):
    database = Database(folder)
    (alone,) = (task for task in tasks("both") if not task.has("template"))
    assert [choice.text for choice in alone.choices] == [UNTUNED]
    assert sketches(database, alone)
    assert not database.skipped


def test_likely_choices_are_tried_before_others(folder):
    (task,) = (task for task in tasks("both") if task.has("template"))
    tried = [number for number in Database(folder).tried(task) if number and not is_sketch(number)]
    likely = list(task.likely)
    assert tried
    assert tried[: len(likely)] == likely[: len(tried)]


def won(folder, task: Task, number: int) -> None:
    """Let a choice have taken less than half of the untuned one's time, in two races."""
    alike = task.tuner.alike(task.choice(number))
    with open(folder / RACES, "w") as file:
        for ratio in (0.4, 0.3):
            raced = (
                RacedChoice(0, task.num_tiles(0), "", (1.0, 1.0, 1.0)),
                RacedChoice(number, 1 << 10, alike, (ratio, ratio, ratio)),
            )
            file.write(TaskRace(Database(folder).place(task), 1e-6, raced).line())


def test_a_build_takes_a_sketch_that_won(folder, tmp_path):
    """Also from one file, into which databases were put together."""
    write_lines(collected([Database(folder)], lambda origin: True), tmp_path / "moved")
    moved = tmp_path / "moved"
    for task in tasks("both"):
        database = Database(moved)
        number = sketches(database, task)[0]
        won(moved, task, number)
        write_lines(collected([Database(moved)], lambda origin: True), tmp_path / "one.json")
        records = Database(tmp_path / "one.json")
        assert [choice.text for choice in records.chosen(task)] == [task.choice(number).text]
        library = tvm_rammer.build(model(), database=records, policy="sequential")
        (program,) = library.programs.values()
        assert "sketch" in {kernel.origin for kernel in program.kernels}
        x = np.random.default_rng(1).standard_normal((4, 96)).astype("float32")
        module = library.create()
        module.set_input("x", x)
        module.run()
        want = x @ numpy_helper.to_array(model().graph.initializer[0])
        np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)
        assert np.array_equal(module.get_output(1).numpy()[:, 0], want.argmax(1))


def test_a_sketch_without_its_record_is_of_no_use(folder, tmp_path):
    write_lines(collected([Database(folder)], lambda origin: True), tmp_path / "moved")
    task = next(task for task in tasks("both") if not task.has("template"))
    won(tmp_path / "moved", task, sketches(Database(tmp_path / "moved"), task)[0])
    kept = [line for line in _records(tmp_path / "moved") if TILES not in line]
    (tmp_path / "moved" / RECORDS).write_text("".join(kept))
    assert not Database(tmp_path / "moved").chosen(task)


def _records(folder) -> list[str]:
    return (folder / RECORDS).read_text().splitlines(keepends=True)


def test_a_session_goes_on(folder):
    """Nothing is tried again, and the trials are those of both spaces."""
    before = _records(folder)
    assert len(before) == TRIALS
    tvm_rammer.tune(model(), trials=TRIALS, space="sketch", work_dir=folder)
    assert _records(folder) == before
    database = tvm_rammer.tune(model(), trials=TRIALS + 4, space="sketch", work_dir=folder)
    new = _records(folder)[TRIALS:]
    assert len(new) == 4
    assert all(TILES in line for line in new)
    tried = sum(len(database.tried(task)) for task in tasks("both"))
    assert tried == TRIALS + 4 == len({json.dumps(json.loads(x)[1][0]) for x in _records(folder)})


def test_a_space_that_is_none(tmp_path):
    with pytest.raises(InputError) as caught:
        tvm_rammer.tune(model(), trials=1, space="everything", work_dir=tmp_path)
    assert str(caught.value) == ("space is 'everything': it must be one of template, sketch, both")
    assert not list(tmp_path.iterdir())
