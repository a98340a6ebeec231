"""What bodies write for GPUs lies inside of their buffers: proved, of every schedule of a model."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from cuda_models import TARGET
from tvm import te, tirx
from write_bounds import writes_inside

import tvm_rammer
from tvm_rammer.backend.cuda import made_stages, schedules
from tvm_rammer.backend.cuda.arch_target import LIMITS, target_of
from tvm_rammer.backend.cuda.thread_body import ThreadBody, thread_body
from tvm_rammer.testing.models import get_model


def bodies_of(name: str) -> list[ThreadBody]:
    """The bodies of all schedules that rules answer for the small variant of a model."""
    found: list[ThreadBody] = []

    def kept(*arguments) -> ThreadBody:
        found.append(thread_body(*arguments))
        return found[-1]

    made_stages.made_stages.cache_clear()
    with patch.object(made_stages, "thread_body", kept):
        tvm_rammer.build(get_model(name).tiny(), TARGET, num_veus=8, policy="sequential")
    made_stages.made_stages.cache_clear()
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["lstm_8x8x256", "bert_base", "squeezenet"])
def test_writes_of_all_schedules_are_proved(name):
    bodies = bodies_of(name)
    assert len(bodies) > 10
    assert all(writes_inside(body, LIMITS.threads) for body in bodies)


def column() -> tirx.PrimFunc:
    """Five results, of which dlight has eight in a block."""
    a, b = te.placeholder((5, 5), "float32"), te.placeholder((5,), "float32")
    k = te.reduce_axis((0, 5), "k")
    return te.create_prim_func([a, b, te.compute((5,), lambda i: te.sum(a[i, k] * b[k], k))])


@pytest.mark.parametrize("conditions_are_kept", [True, False])
def test_a_condition_that_tvm_forgets_is_missed(conditions_are_kept):
    kept = schedules.with_kept_conditions if conditions_are_kept else lambda func: func
    target = target_of("sm_90")
    with patch.object(schedules, "with_kept_conditions", kept):
        answer = dict(schedules._answers(column(), target, schedules._rules()))["gemv"]
    (body,) = made_stages.made_stages(answer, target, LIMITS).bodies
    assert writes_inside(body, LIMITS.threads) is conditions_are_kept
