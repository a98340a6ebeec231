"""Every model of the zoo, small, under every plan and form."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from close import assert_outputs_close
from small_models import replan

import tvm_rammer
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models import MODELS, before_softmax
from tvm_rammer.testing.reference import random_inputs

PLANS = [(policy, veus) for policy in ("sequential", "wavefront") for veus in (1, 2, 4)]
QUICK = ("recommender", "mixture_of_experts", "transformer_decoder")


def check(name: str, forms: Sequence[str]) -> None:
    """Compile once, plan again and again; ``per-op`` is a build of its own."""
    model = before_softmax(MODELS[name].tiny())
    inputs = random_inputs(model)
    wanted = run_onnxruntime(model, inputs)
    built = tvm_rammer.build(model)
    libraries = [
        replan(built, policy=policy, num_veus=veus, form=form)
        for form in forms
        for policy, veus in PLANS
    ]
    for library in libraries:
        got = [output.numpy() for output in library.create()(*inputs.values())]
        assert_outputs_close(got, wanted)


@pytest.mark.parametrize("name", QUICK)
def test_model(name):
    check(name, ["program"])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model(name):
    check(name, ["program", "wavefront"])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_operator_after_operator(name):
    model = before_softmax(MODELS[name].tiny())
    inputs = random_inputs(model)
    outputs = tvm_rammer.build(model, form="per-op").create()(*inputs.values())
    assert_outputs_close([t.numpy() for t in outputs], run_onnxruntime(model, inputs))
