"""Every choice that the tuner may take computes what the untuned one computes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from close import assert_close
from kernel_runs import (
    HOST,
    TARGET,
    constant,
    legalized_func,
    numbers,
    run_prim_func,
)
from tvm import relax

from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.templates.outer_product_rules import Convolution, Depthwise, Matmul
from tvm_rammer.kernel.scheduled import UNTUNED
from tvm_rammer.tuning.task import Task

OP = relax.op
TOLERANCE = 5e-5
NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


def product():
    x, w = numbers((6, 70)), numbers((70, 136), seed=1)
    return legalized_func(lambda x: OP.nn.relu(OP.matmul(x, constant(w))), x), [x, w]


def vector():
    x, w = numbers((1, 600)), numbers((600, 72), seed=1)
    return legalized_func(lambda x: OP.matmul(x, constant(w)), x), [x, w]


def convolution():
    x, w = numbers((1, 14, 14, 24)), numbers((40, 3, 3, 24), seed=1)
    return legalized_func(
        lambda x: OP.nn.conv2d(x, constant(w), padding=(1, 1, 1, 1), **NHWC), x
    ), [x, w]


def strided():
    x, w = numbers((1, 15, 15, 16)), numbers((24, 3, 3, 16), seed=1)
    return legalized_func(
        lambda x: OP.nn.conv2d(x, constant(w), strides=(2, 2), padding=(1, 1, 1, 1), **NHWC), x
    ), [x, w]


def depthwise():
    x, w = numbers((1, 14, 14, 32)), numbers((32, 3, 3, 1), seed=1)
    return legalized_func(
        lambda x: OP.nn.conv2d(x, constant(w), padding=(1, 1, 1, 1), groups=32, **NHWC), x
    ), [x, w]


def filtered():
    x, w = numbers((1, 24, 24, 32)), numbers((32, 5, 5, 32), seed=1)
    return legalized_func(lambda x: OP.nn.conv2d(x, constant(w), **NHWC), x), [x, w]


def deep():
    x, w = numbers((1, 28, 28, 64)), numbers((64, 3, 3, 64), seed=1)
    return legalized_func(
        lambda x: OP.nn.conv2d(x, constant(w), padding=(1, 1, 1, 1), **NHWC), x
    ), [x, w]


def task_of(func, vdevice=HOST) -> Task:
    return Task(func, (1,), vdevice, TOLERANCE)


@pytest.mark.parametrize("make", [product, vector, convolution, strided, depthwise, filtered])
def test_choices_agree(make):
    func, inputs = make()
    task = task_of(func)
    want = run_prim_func(func, inputs, [1]).outputs[0]
    texts = [choice.text for choice in task.choices]
    assert texts[0] == UNTUNED
    assert len(set(texts)) == len(texts) > 8
    for seed, choice in enumerate(random.Random(0).sample(task.choices[1:], 6)):
        run = run_prim_func(func, inputs, [1], seed=seed, tuned=lambda *_, c=choice: [c])
        assert_close(run.outputs[0], want, 2e-4)


@pytest.mark.parametrize("cpu", ["znver4", "znver5"])
@pytest.mark.parametrize("make", [product, convolution, strided, depthwise, filtered, deep])
def test_what_another_machine_takes_is_likely(make, cpu):
    """Where what is said of this one is wrong, the choice by the true numbers is tried early."""
    func, _ = make()
    target = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu}
    true = replace(vdevice_for(target), l2_bytes=1 << 20)
    cycles = true.speeds.cycles
    slow = replace(
        cycles,
        multiply_add_latency=2 * cycles.multiply_add_latency,
        latency_slack=2 * cycles.latency_slack,
    )
    told = replace(
        true,
        vector_registers=true.vector_registers // 2,
        l2_bytes=true.l2_bytes // 4,
        speeds=replace(true.speeds, cycles=slow),
    )
    wanted = task_of(func, true).choice(0).emit().tiling
    task = task_of(func, told)
    made = [task.choice(number).emit().tiling for number in (0, *task.likely)]
    assert wanted in made[:4]
    assert 0 not in task.likely
    assert len(set(task.likely)) == len(task.likely) < len(task.choices) // 4


def test_nothing_is_likely_where_there_is_no_choice():
    func = legalized_func(lambda x: OP.argmax(x, axis=1), numbers((4, 64)))
    assert not Task(func, (), HOST, 0.0).likely


def test_choices_that_share_packed_weights_stand_in_for_each_other():
    func, inputs = vector()
    task = task_of(func)
    by_text = {choice.text.split(": ")[1]: choice for choice in task.choices[1:]}
    names = [name for name in by_text if "8 in 2 chains" in name or name.startswith("1 x 1 ")]
    chosen = [by_text[name] for name in names[:3]]
    for seed in range(3):
        run = run_prim_func(func, inputs, [1], seed=seed, tuned=lambda *_: chosen)
        x, w = inputs
        assert_close(run.outputs[0], (x.astype(np.float64) @ w).astype(np.float32))
    made = [c.tiling for c in run.kernel.stages[-1].candidates]
    assert set(made) <= {name.split(",")[0] for name in names[:3]}


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize(
    ("make", "rule"),
    [(product, Matmul()), (convolution, Convolution()), (depthwise, Depthwise())],
)
def test_wrong_numbers_of_registers_hide_no_choice(make, rule, registers):
    """What a build takes by the true one is listed where only half of them are known of."""
    func, _ = make()
    true = replace(HOST, vector_registers=registers)
    found = rule.match(func, frozenset({1}), true)
    usual = {f"{rule.name}: {each.tile}" for each in rule.usual(found)}
    known = task_of(func, replace(true, vector_registers=registers // 2)).choices
    assert usual and usual <= {choice.text.split(",")[0] for choice in known}


def test_what_no_template_takes_offers_no_choice_but_the_untuned_one():
    func = legalized_func(lambda x: OP.argmax(x, axis=1), numbers((4, 64)))
    assert [choice.text for choice in Task(func, (), HOST, TOLERANCE).choices] == [UNTUNED]


def test_a_workload_holds_its_task():
    """Also behind the annotation that a schedule leaves."""
    from tvm import s_tir

    from tvm_rammer.tuning.space import choice_numbers, trace_of

    func, _ = convolution()
    task = task_of(func)
    workload = task.workload()
    trace = trace_of(workload, len(task.choices), 5)
    schedule = s_tir.Schedule(workload)
    trace.apply_to_schedule(schedule, remove_postproc=True)
    assert choice_numbers(schedule.mod) == [5]
    again = Task.of(schedule.mod)
    assert [c.text for c in again.choices] == [c.text for c in task.choices]
    assert (again.constants, again.winograd_tolerance) == ((1,), TOLERANCE)


def test_another_device_is_another_workload():
    import tvm_ffi

    func, _ = product()
    narrow = replace(HOST, vector_bytes=HOST.vector_bytes // 2)
    cycles = replace(HOST.speeds.cycles, multiply_add_latency=8.0)
    late = replace(HOST, speeds=replace(HOST.speeds, cycles=cycles))
    with TARGET:
        one, *others = (task_of(func, each).workload() for each in (HOST, narrow, late))
    assert not any(tvm_ffi.structural_equal(one, other) for other in others)
    assert Task.of(others[1]).vdevice.speeds == late.speeds
    assert tvm_ffi.structural_equal(one, task_of(func).workload())
