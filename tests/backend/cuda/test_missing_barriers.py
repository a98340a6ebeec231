"""Kernels of whole models have no races, and without any one of their barriers they have.

The emulation passes by one ``__syncthreads`` after the other, in a kernel that is compiled once.
"""

from __future__ import annotations

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
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs

TOLERANCE = 1e-4


def idle_barriers(form: str, num_veus: int) -> tuple[list[int], int]:
    """The lines of barriers whose removal nothing shows, and how many barriers there are."""
    model = branches()
    inputs = random_inputs(model)
    expected = ReferenceEvaluator(model).run(None, inputs)
    sources: list[str] = []
    with looking_for_races(), edited(lambda source: sources.append(source) or source):
        library = tvm_rammer.build(model, TARGET, form=form, policy="wavefront", num_veus=num_veus)

    def is_right() -> bool:
        return all(worst(outputs(library, inputs, k), expected) < TOLERANCE for k in ORDERS)

    def is_idle(line: int) -> bool:
        try:
            with without_barrier(line):
                return is_right()
        except Exception as error:
            assert "emulated CUDA" in str(error)
            return False

    assert is_right()
    lines = barriers(max(sources, key=len))
    return [line for line in lines if is_idle(line)], len(lines)


# Idle are the two of the softmax that TVM sets before it first writes an array, and the one that
# ends the last body. By wave, blocks wait for nobody and bodies end their launches: three more.
@pytest.mark.parametrize(("form", "num_veus", "most"), [("program", 4, 3), ("wavefront", 2, 6)])
def test_a_barrier_that_is_missing_from_a_merged_kernel_is_noticed(form, num_veus, most):
    idle, count = run_emulated(idle_barriers, form, num_veus)
    assert count >= 16 and len(idle) <= most, idle


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
