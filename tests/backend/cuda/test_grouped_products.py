"""Convolutions of groups are products on GPUs: what they compute, and which are."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_models import Case, convolution, convolved, errors_by_rule
from emulated_cuda import run_emulated
from tvm import relax, te, tirx

from tvm_rammer.backend.cuda.arch_target import target_of
from tvm_rammer.backend.cuda.block_tilings import product_of
from tvm_rammer.backend.cuda.grouped_products import with_groups
from tvm_rammer.backend.cuda.sliced_matmul import SlicedMatmul
from tvm_rammer.kernel.blocks import schedule_of

OP = relax.op
TILINGS = {
    "whole": SlicedMatmul((8, 8), (4, 2), 1, 8),
    "parts of warps": SlicedMatmul((4, 4), (4, 4), 16, 4),
    "columns": SlicedMatmul((4, 8), (4, 1), 4, 8),
}


CASES: dict[str, Case] = {
    "as many outputs": (((1, 7, 7, 48), (48, 3, 3, 16)), convolution, convolved),
    "more outputs": (((1, 6, 6, 24), (96, 3, 3, 8)), convolution, convolved),
    "fewer inputs": (((2, 6, 6, 6), (32, 3, 3, 3)), convolution, convolved),
    "strides": (
        ((1, 9, 9, 32), (32, 3, 3, 16)),
        lambda x, w: convolution(x, w, 2),
        lambda x, w: convolved(x, w, 2),
    ),
    "followed": (
        ((1, 7, 7, 32), (64, 3, 3, 16), (64,), (1, 7, 7, 64)),
        lambda x, w, b, y: OP.nn.relu(OP.add(OP.add(convolution(x, w), b), y)),
        lambda x, w, b, y: np.maximum(convolved(x, w) + b + y, 0),
    ),
}


def errors(name: str, tiling: str, dtype: str) -> tuple[list[float], set[str]]:
    return errors_by_rule(CASES[name], TILINGS[tiling], dtype)


@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("name", CASES)
def test_groups_are_numpys(name, tiling):
    found, origins = run_emulated(errors, name, tiling, "float32")
    assert max(found) < 1e-6
    assert "slicedmatmul" in origins


@pytest.mark.parametrize("tiling", ["whole", "parts of warps"])
def test_halves_too(tiling):
    found, origins = run_emulated(errors, "followed", tiling, "float16")
    assert max(found) < 1e-2
    assert "slicedmatmul" in origins


def function(channels: int, filters: tuple[int, ...]) -> tirx.PrimFunc:
    x = relax.Var("x", relax.TensorType((1, 6, 6, channels), "float32"))
    w = relax.Var("w", relax.TensorType(filters, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        builder.emit_func_output(builder.emit(convolution(x, w)))
    mod = relax.transform.LegalizeOps()(builder.get())
    (func,) = (func for _, func in mod.functions_items() if isinstance(func, tirx.PrimFunc))
    return func


def test_groups_have_an_axis():
    func = function(48, (96, 3, 3, 16))
    assert product_of(schedule_of(func)) is None
    product = product_of(schedule_of(with_groups(func, 16)))
    assert product is not None
    assert (product.m, product.n, product.k) == (36, 32, 144)


@pytest.mark.parametrize(
    ("channels", "filters"),
    [(48, (72, 3, 3, 16)), (48, (48, 3, 3, 1)), (48, (32, 3, 3, 48))],
    ids=["24 results of a group", "a channel each", "one group"],
)
def test_others_have_none(channels, filters):
    func = function(channels, filters)
    assert with_groups(func, 16) is None
    if filters[-1] < channels:
        with target_of("sm_90") as target:
            assert TILINGS["parts of warps"].apply(func, target, False) is None


def test_heads_that_share_keys_are_no_groups():
    """Of what is read by heads, those of a group are rows, which would be padded."""
    heads, keys = te.placeholder((32, 5, 8)), te.placeholder((2, 8, 6))
    k = te.reduce_axis((0, 8))
    scores = te.compute(
        (32, 5, 6), lambda h, i, j: te.sum(heads[h, i, k] * keys[h // 16, k, j], [k])
    )
    func = te.create_prim_func([heads, keys, scores])
    assert product_of(schedule_of(func)) is not None
    assert with_groups(func, 16) is None
