"""Loops that importers write, for each thread as they are: vectors in them go lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_models import TARGET, outputs, worst
from emulated_cuda import run_emulated
from one_operator import fed, one_operator, reference

import tvm_rammer


def error(kind: str, shapes: list[tuple[int, ...]], **attributes: object) -> float:
    """Of an operator on emulated CUDA."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype("float32") / 4 for shape in shapes]
    model = one_operator(kind, inputs, 2 if kind == "LinearAttention" else 1, **attributes)
    feed = fed(model, inputs)
    library = tvm_rammer.build(model, TARGET, policy="wavefront", num_veus=4)
    return worst(outputs(library, feed), reference(model, feed))


def test_determinants():
    assert run_emulated(error, "Det", [(3, 5, 5)]) < 1e-6


@pytest.mark.parametrize("values", [6, 7, 64])
def test_linear_attention(values):
    """Columns of 6, of 7 and of 32 go through the tokens together, for four queries each."""
    shapes = [(2, 5, 64), (2, 5, 16), (2, 5, 2 * values), (2, 2, 8, values), (2, 5, 2), (2, 5, 2)]
    heads = {"q_num_heads": 8, "kv_num_heads": 2}
    assert run_emulated(error, "LinearAttention", shapes, **heads) < 1e-5
