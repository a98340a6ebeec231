"""What each space of the tuner has for an operator: its table, and what MetaSchedule makes as it
comes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from bench.compare_spaces import (
    STOCK,
    BestOfSpace,
    OperatorSpaces,
    compact,
    compare_spaces,
)
from bench.tuning_study import TuningStudy
from bench.tuning_tables import TABLES, verdicts
from close import assert_close
from kernel_runs import constant, legalized_func, numbers, run_prim_func
from tvm import relax, tirx

import tvm_rammer
from tvm_rammer.kernel.blocks import schedule_of
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.kernel.strides import with_strides
from tvm_rammer.testing.models import get_model
from tvm_rammer.tuning.sketch_choice import sketch_of, trace_text
from tvm_rammer.tuning.task import SPACES
from tvm_rammer.typed_json import read_as

OP = relax.op


def test_the_table():
    row = OperatorSpaces(
        "matmul 0",
        3,
        1.25e-5,
        (
            BestOfSpace("template", "4 x 2", 8, (0.8, 0.75, 0.85)),
            BestOfSpace(STOCK, "16 rTasks", 1600, (2.0, 1.6, 2.5)),
        ),
    )
    studies = {"net": TuningStudy(spaces=(row,))}
    assert read_as(TuningStudy, json.loads(json.dumps(asdict(studies["net"])))) == studies["net"]
    (made,) = (each for each in TABLES if each.title == "Spaces")
    assert made.rows(studies) == [
        [
            *("net", "matmul 0", "3", "12.5"),
            *("0.800x (0.75 to 0.85), 8", "none", "2.000x (1.60 to 2.50), 1,600"),
        ]
    ]
    assert not made.rows({"other": TuningStudy()})
    said = verdicts(studies)
    assert len(said) == 2
    assert "'template' beats the untuned choice beyond doubt for 1 of 1 operators" in said[0]
    assert "takes 2.000x of its time" in said[1]


def product():
    x, w = numbers((6, 70)), numbers((70, 136), seed=1)
    return legalized_func(lambda x: OP.matmul(x, constant(w)), x), x, w


def test_a_trace_for_tensors_without_gaps_is_one_for_those_with_them():
    func, x, w = product()
    wide = with_strides(func, {2: (200, 1)})
    assert not len(compact(wide).params[2].strides)
    assert compact(func).same_as(func)
    schedule = schedule_of(compact(wide))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.parallel(schedule.get_loops(block)[0])
    text = trace_text(schedule.trace)
    made = sketch_of(wide, text).emit()
    assert list(map(int, made.func.params[2].strides)) == [200, 1]
    run = run_prim_func(func, [x, w], [1], tuned=lambda *_: [sketch_of(func, text)])
    assert run.kernel.stages[0].kernel.num_tiles == 6
    assert_close(run.outputs[0], (x.astype(np.float64) @ w).astype(np.float32), 2e-4)


def test_what_is_noted_at_the_loop_of_rtasks_reaches_their_bodies():
    """MetaSchedule notes there how far the loops within are to be unrolled."""
    func, _, _ = product()
    schedule = schedule_of(func)
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    tiles = schedule.get_loops(block)[0]
    schedule.parallel(tiles)
    schedule.annotate(tiles, "pragma_auto_unroll_max_step", 64)
    made = sketch_of(func, trace_text(schedule.trace)).emit()
    (stage,) = split_into_stages(made.func).stages
    assert stage.num_tiles == 6
    found = collect(stage.body.body, tirx.AttrStmt)
    assert "pragma_auto_unroll_max_step" in {each.attr_key for each in found}


@pytest.mark.slow
def test_all_spaces_of_a_network(tmp_path: Path):
    loaded = tvm_rammer.load_model(get_model("mlp").tiny())
    rows = compare_spaces(loaded, tmp_path, 3, lambda told: None)
    assert rows
    assert all(row.seconds > 0 for row in rows)
    assert {each.space for row in rows for each in row.found} == {*SPACES, STOCK}
