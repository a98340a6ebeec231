"""Products in slices on GPUs: what they compute, however operands lie, and how they are tiled."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_models import Case, convolution, convolved, errors_by_rule
from emulated_cuda import run_emulated
from tvm import relax, te, topi

from tvm_rammer.backend.cuda.arch_target import target_of
from tvm_rammer.backend.cuda.sliced_matmul import SlicedMatmul

OP = relax.op
#: With slices and without, vectors of one to four results, and slices of a part of a warp.
TILINGS = {
    "whole": SlicedMatmul((8, 8), (4, 2), 1, 8),
    "slices": SlicedMatmul((4, 8), (4, 4), 8, 8),
    "many results": SlicedMatmul((4, 4), (8, 8), 1, 4),
    "parts of warps": SlicedMatmul((4, 4), (4, 4), 16, 4),
    "columns": SlicedMatmul((4, 8), (4, 1), 4, 8),
}


#: Shapes, what they are for Relax, and for numpy.
CASES: dict[str, Case] = {
    "whole tiles": (((32, 128), (128, 64)), OP.matmul, np.matmul),
    "odd": (((17, 75), (75, 37)), OP.matmul, np.matmul),
    "one step": (((24, 8), (8, 24)), OP.matmul, np.matmul),
    "batches": (((3, 20, 64), (3, 64, 32)), OP.matmul, np.matmul),
    "rows of weights": (
        ((24, 96), (40, 96)),
        lambda x, w: OP.matmul(x, OP.permute_dims(w)),
        lambda x, w: x @ w.T,
    ),
    "columns of data": (
        ((96, 24), (96, 40)),
        lambda x, w: OP.matmul(OP.permute_dims(x), w),
        lambda x, w: x.T @ w,
    ),
    "followed": (
        ((20, 64), (64, 36), (36,)),
        lambda x, w, b: OP.nn.relu(OP.add(OP.matmul(x, w), b)),
        lambda x, w, b: np.maximum(x @ w + b, 0),
    ),
    "in another order": (
        ((24, 64), (64, 20)),
        lambda x, w: OP.permute_dims(OP.matmul(x, w)),
        lambda x, w: (x @ w).T,
    ),
    "a convolution": (((1, 7, 7, 16), (24, 3, 3, 16)), convolution, convolved),
    "strides": (
        ((2, 9, 9, 12), (20, 3, 3, 12)),
        lambda x, w: convolution(x, w, 2),
        lambda x, w: convolved(x, w, 2),
    ),
    "channels that are no vectors": (((1, 6, 6, 3), (20, 3, 3, 3)), convolution, convolved),
}


def errors(name: str, tiling: str, dtype: str) -> tuple[list[float], set[str]]:
    return errors_by_rule(CASES[name], TILINGS[tiling], dtype)


@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("name", CASES)
def test_products_are_numpys(name, tiling):
    found, origins = run_emulated(errors, name, tiling, "float32")
    assert max(found) < 1e-6
    assert "slicedmatmul" in origins


@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("name", ["odd", "rows of weights", "followed", "a convolution"])
def test_halves_too(name, tiling):
    found, origins = run_emulated(errors, name, tiling, "float16")
    assert max(found) < 1e-2
    assert "slicedmatmul" in origins


def test_more_slices_than_results_are_refused():
    with pytest.raises(ValueError, match="8 slices add up the 4 results"):
        SlicedMatmul((4, 8), (2, 2), 8, 16)


@pytest.mark.parametrize(("rows", "columns", "taken"), [(33, 64, True), (32, 64, False)])
def test_tiles_that_would_be_padding_are_left_to_smaller_ones(rows, columns, taken):
    a, b = (te.placeholder(shape, "float32") for shape in ((rows, 64), (64, columns)))
    func = te.create_prim_func([a, b, topi.nn.matmul(a, b)])
    with target_of("sm_90") as target:
        answer = SlicedMatmul((16, 16), (4, 4), 1, 32).apply(func, target, False)
    assert (answer is not None) == taken
