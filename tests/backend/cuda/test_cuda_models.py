"""Whole models on GPUs: planned, compiled and run on the emulation, equal to numpy."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from cuda_models import TARGET, Run, branches, outputs, router, run_model, run_onnx, volumes, worst
from emulated_cuda import edited, resident_blocks, run_emulated
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

import tvm_rammer
from tvm_rammer.backend.cuda.codegen import region_kernels
from tvm_rammer.schedule import POLICIES
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.reference import random_inputs

#: The form of one launch for each wavefront, and of one for all, whose blocks wait for each other.
FORMS = ("wavefront", "program")
TOLERANCE = 1e-4


def run_graph(make: Callable[[], ModelProto], form: str) -> Run:
    return run_onnx(make(), form=form, policy="wavefront", num_veus=4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("made", [branches, volumes])
def test_convolutions_compute_what_numpy_does(made, form):
    run = run_emulated(run_graph, made, form)
    assert max(run.errors.values()) < TOLERANCE


@pytest.mark.parametrize("form", FORMS)
def test_a_choice_of_experts_is_planned_and_computes_what_numpy_does(form):
    run = run_emulated(run_graph, router, form)
    assert max(run.errors.values()) < TOLERANCE
    assert run.operators == 6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["mlp", "lstm_8x8x256", "mixture_of_experts", "bert_base"])
def test_models_compute_what_numpy_does(name, form):
    run = run_emulated(run_model, name, form=form, policy="wavefront", num_veus=6)
    assert max(run.errors.values()) < TOLERANCE


def run_without_waits() -> dict[int, float]:
    """The error of an LSTM whose blocks wait for nobody."""
    with edited(lambda source: source.replace("rammer_acquire(counter) < count", "false")):
        options = {"form": "program", "policy": "wavefront", "num_veus": 6}
        return run_model("lstm_8x8x256", **options).errors


def test_a_wait_that_is_missing_is_noticed():
    assert max(run_emulated(run_without_waits).values()) > TOLERANCE


def run_policies(names: list[str]) -> dict[str, float]:
    """The error of an LSTM under one policy after the other, whose kernels are compiled once."""
    model = get_model("lstm_8x8x256").tiny()
    inputs = random_inputs(model)
    expected = ReferenceEvaluator(model).run(None, inputs)
    compiled: list[str] = []
    with edited(lambda source: compiled.append(source) or source):
        library = tvm_rammer.build(model, TARGET, policy=names[0], num_veus=5)
        plans = {name: library.replan(name, num_veus=k + 2) for k, name in enumerate(names)}
    assert len(compiled) == 1
    return {name: worst(outputs(plan, inputs), expected) for name, plan in plans.items()}


def test_another_plan_for_another_number_of_veus_compiles_nothing():
    errors = run_emulated(run_policies, sorted(POLICIES))
    assert max(errors.values()) < TOLERANCE


def run_more_blocks_than_stay() -> None:
    with resident_blocks(5):
        run_model("lstm_8x8x256", form="program", policy="wavefront", num_veus=6)


def test_more_blocks_than_stay_resident_are_an_error():
    with pytest.raises(RuntimeError, match="cooperative"):
        run_emulated(run_more_blocks_than_stay)


def with_inputs(count: int) -> ModelProto:
    graph = GraphBuilder("inputs")
    given = [graph.input(f"x{k}", (1, 4)) for k in range(count)]
    graph.output("y", graph.op("Concat", *[graph.op("Relu", each) for each in given], axis=1))
    return graph.build()


@pytest.mark.parametrize("count", [200, pytest.param(600, marks=pytest.mark.slow)])
def test_a_region_with_hundreds_of_inputs(count):
    found = run_emulated(run_onnx, with_inputs(count), num_veus=4)
    assert max(found.errors.values()) < TOLERANCE


def run_with_few_pointers() -> None:
    with patch.object(region_kernels, "_MOST_BASES", 100):
        run_onnx(with_inputs(120), num_veus=4)


def test_a_region_with_more_inputs_than_a_kernel_takes_is_an_error():
    with pytest.raises(RuntimeError) as refused:
        run_emulated(run_with_few_pointers)
    assert str(refused.value) == (
        "ModelError: rammer_region0 has 121 inputs and outputs, and this kernel for CUDA takes 98: "
        "give parameters as constants"
    )
