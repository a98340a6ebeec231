"""Products of few rows on GPUs: what they compute, and which are left to other rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_models import Case, errors_by_rule
from emulated_cuda import run_emulated
from tvm import relax, te, topi

from tvm_rammer.backend.cuda.arch_target import target_of
from tvm_rammer.backend.cuda.column_strips import ColumnStrips
from tvm_rammer.kernel.blocks import schedule_of

OP = relax.op
#: Shapes, what they are for Relax, and for numpy.
CASES: dict[str, Case] = {
    "one row": (((1, 96), (96, 128)), OP.matmul, np.matmul),
    "a vector": (((256,), (256, 64)), OP.matmul, np.matmul),
    "rows": (((5, 64), (64, 96)), OP.matmul, np.matmul),
    "more results than threads": (((8, 64), (64, 128)), OP.matmul, np.matmul),
    "odd": (((3, 375), (375, 36)), OP.matmul, np.matmul),
    "batches": (((3, 2, 64), (3, 64, 64)), OP.matmul, np.matmul),
    "followed": (
        ((2, 64), (64, 64), (64,)),
        lambda x, w, b: OP.nn.relu(OP.add(OP.matmul(x, w), b)),
        lambda x, w, b: np.maximum(x @ w + b, 0),
    ),
    "in another shape": (
        ((1, 512), (512, 128)),
        lambda x, w: OP.reshape(OP.matmul(x, w), (8, 16)),
        lambda x, w: (x @ w).reshape(8, 16),
    ),
}


def errors(name: str, outputs_of_block: int) -> tuple[list[float], set[str]]:
    return errors_by_rule(CASES[name], ColumnStrips(outputs_of_block))


@pytest.mark.parametrize("outputs_of_block", [16, 64])
@pytest.mark.parametrize("name", CASES)
def test_products_are_numpys(name, outputs_of_block):
    found, origins = run_emulated(errors, name, outputs_of_block)
    assert max(found) < 1e-6
    assert "columnstrips" in origins


def applies(*shapes: tuple[int, ...], after: Callable[..., Any] = topi.nn.relu) -> bool:
    a, b = (te.placeholder(shape, "float32") for shape in shapes)
    func = te.create_prim_func([a, b, after(topi.nn.matmul(a, b))])
    with target_of("sm_90") as target:
        return ColumnStrips(32).apply(schedule_of(func).mod["main"], target, False) is not None


def test_many_rows_narrow_results_and_other_orders_are_left_to_other_rules():
    assert applies((8, 64), (64, 64))
    assert not applies((9, 64), (64, 64))
    assert not applies((2, 64), (64, 6))
    assert not applies((2, 64), (64, 64), after=topi.transpose)
    assert applies((1, 64), (64, 64), after=topi.transpose)


def test_a_sum_is_no_product():
    a = te.placeholder((64, 64), "float32")
    func = te.create_prim_func([a, topi.sum(a, 0)])
    with target_of("sm_90") as target:
        assert ColumnStrips(32).apply(schedule_of(func).mod["main"], target, False) is None
