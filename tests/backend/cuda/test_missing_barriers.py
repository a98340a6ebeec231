"""Kernels of whole models have no races, and without a barrier that orders anything they have.

The emulation passes by one ``__syncthreads`` after the other, in a kernel that is compiled once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from cuda_models import TARGET, branches, outputs, worst
from emulated_cuda import (
    ORDERS,
    barriers,
    edited,
    looking_for_races,
    run_emulated,
    without_barrier,
)
from onnx.reference import ReferenceEvaluator

import tvm_rammer
from tvm_rammer.backend.cuda.cuda_backend import CudaBackend
from tvm_rammer.backend.protocol import EncodedPlan
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import RProgram
from tvm_rammer.schedule import CostModel
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs

TOLERANCE = 1e-4


def without_each_barrier(form: str, num_veus: int) -> Counter[str]:
    """How often the removal of a barrier is an error, changes a result unnoticed, or nothing."""
    model = branches()
    inputs = random_inputs(model)
    expected = ReferenceEvaluator(model).run(None, inputs)
    sources: list[str] = []
    with looking_for_races(), edited(lambda source: sources.append(source) or source):
        library = tvm_rammer.build(model, TARGET, form=form, policy="wavefront", num_veus=num_veus)

    def is_right() -> bool:
        return all(worst(outputs(library, inputs, k), expected) < TOLERANCE for k in ORDERS)

    def result(line: int) -> str:
        try:
            with without_barrier(line):
                return "idle" if is_right() else "wrong"
        except Exception as error:
            # Mostly a race; what has not arrived yet can also be an address, or a count.
            assert "emulated CUDA: " in str(error), str(error)
            return "error"

    assert is_right()
    return Counter(map(result, barriers(max(sources, key=len))))


# Idle are barriers that TVM sets before an array is first written, those of loops that run once,
# and, where bodies begin with one, those that they end with. By wave, blocks wait for nobody. With
# fewer blocks than tiles each runs several in a launch.
@pytest.mark.parametrize(("form", "num_veus", "errors"), [("program", 4, 10), ("wavefront", 2, 7)])
def test_a_barrier_that_is_missing_from_a_merged_kernel_is_an_error(form, num_veus, errors):
    found = run_emulated(without_each_barrier, form, num_veus)
    assert not found["wrong"]
    assert found["error"] >= errors


def error_of(name: str, form: str, strong: str = "", weak: str = "") -> float:
    model = get_model(name).tiny()
    inputs = random_inputs(model)
    with looking_for_races(), edited(lambda source: source.replace(strong, weak or strong)):
        library = tvm_rammer.build(model, TARGET, form=form, policy="estf", num_veus=5)
    expected = ReferenceEvaluator(model).run(None, inputs)
    return max(worst(outputs(library, inputs, order), expected) for order in ORDERS)


@pytest.mark.parametrize("form", ["wavefront", "program"])
@pytest.mark.parametrize("name", ["lstm_8x8x256", "mixture_of_experts"])
def test_models_have_no_races(name, form):
    assert run_emulated(error_of, name, form) < TOLERANCE


@pytest.mark.parametrize(
    ("strong", "weak"), [("ld.acquire", "ld.relaxed"), ("st.release", "st.relaxed")]
)
def test_a_hand_over_without_order_is_a_race(strong, weak):
    with pytest.raises(RuntimeError, match="emulated CUDA: a race: thread "):
        run_emulated(error_of, "lstm_8x8x256", "program", strong, weak)


def error_with_gathered_waits(kept: bool) -> tuple[float, int]:
    """The error of a network whose blocks wait for one that waits for all, and how often.

    Waits cost as much as on a device of very many blocks; not ``kept``, whoever gathers waits has
    none of its own.
    """
    model = branches()
    inputs = random_inputs(model)
    plain, encode = CudaBackend.costs, CudaBackend.encode
    gathering = 0

    def costs(backend: CudaBackend, vdevice: VDevice) -> CostModel:
        return replace(plain(backend, vdevice), wait=1.0)

    def encoded(backend: CudaBackend, program: RProgram, *rest: Any, **more: Any) -> EncodedPlan:
        nonlocal gathering
        gathering += sum(task.gathers for _, _, task in program.tasks())
        veus = tuple(
            tuple(task if kept or not task.gathers else replace(task, waits=()) for task in tasks)
            for tasks in program.veus
        )
        return encode(backend, replace(program, veus=veus), *rest, **more)

    with (
        looking_for_races(),
        patch.object(CudaBackend, "costs", costs),
        patch.object(CudaBackend, "encode", encoded),
    ):
        library = tvm_rammer.build(model, TARGET, policy="wavefront", num_veus=6)
    expected = ReferenceEvaluator(model).run(None, inputs)
    return max(worst(outputs(library, inputs, order), expected) for order in ORDERS), gathering


def test_blocks_that_wait_for_one_that_waits_for_all_have_no_races():
    error, gathering = run_emulated(error_with_gathered_waits, True)
    assert error < TOLERANCE
    assert gathering


def test_gathered_waits_that_are_missing_are_a_race():
    with pytest.raises(RuntimeError, match="emulated CUDA: a race: thread "):
        run_emulated(error_with_gathered_waits, False)
