"""Operators of two open axes, as operators of one."""

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_rammer.kernel.merged_axes import merged_axes

B, T = (tirx.Var(name, "int64") for name in "bt")
RNG = np.random.default_rng(0)


def product(*others):
    """Rows of batches times a matrix, plus what has the rows too."""
    x = te.placeholder((B, T, 12), "float32", name="x")
    w = te.placeholder((12, 8), "float32", name="w")
    k = te.reduce_axis((0, 12), "k")
    y = te.compute((B, T, 8), lambda b, t, j: te.sum(x[b, t, k] * w[k, j], axis=k), "y")
    tensors = [te.placeholder(shape, "float32", name="z") for shape in others]

    def sum_of_all(b, t, j):
        value = y[b, t, j]
        for tensor, shape in zip(tensors, others, strict=True):
            place = (b, t, j)[3 - len(shape) :]
            value += tensor[tuple(0 if s == 1 else p for s, p in zip(shape, place, strict=True))]
        return value

    return te.create_prim_func([x, w, *tensors, te.compute((B, T, 8), sum_of_all, "sum")])


def test_it_computes_the_same():
    func = product((B, T, 8), (8,), (B, T, 1))
    found = merged_axes(func)
    assert found.axes == (0, None, 0, None, 0, 0)
    own, stock = (tvm.compile(each, "llvm") for each in (found.func, func))
    for b, t in ((1, 1), (3, 5), (4, 1)):
        shapes = [(b, t, 12), (12, 8), (b, t, 8), (8,), (b, t, 1)]
        data = [RNG.standard_normal(shape).astype("float32") for shape in shapes]
        expected, got = (np.full((b, t, 8), np.nan, "float32") for _ in range(2))
        result = tvm.runtime.tensor(expected)
        stock(*map(tvm.runtime.tensor, data), result)
        rows = [
            each.reshape(b * t, *each.shape[2:]) if axis == 0 else each
            for each, axis in zip(data, found.axes, strict=False)
        ]
        merged = tvm.runtime.tensor(got.reshape(b * t, 8))
        own(*map(tvm.runtime.tensor, rows), merged)
        np.testing.assert_allclose(
            merged.numpy().reshape(b, t, 8), result.numpy(), rtol=1e-6, atol=1e-6
        )


def windows():
    """A row is computed of the next one too: the last one of a batch has none."""
    x = te.placeholder((B, T + 1, 4), "float32", name="x")
    y = te.compute((B, T, 4), lambda b, t, j: x[b, t, j] + x[b, t + 1, j], "y")
    return te.create_prim_func([x, y])


def turned():
    x = te.placeholder((T, B, 4), "float32", name="x")
    return te.create_prim_func([x, te.compute((B, T, 4), lambda b, t, j: x[t, b, j], "y")])


def numbered():
    """Where a row is decides what it is."""
    x = te.placeholder((B, T, 4), "float32", name="x")
    y = te.compute((B, T, 4), lambda b, t, j: x[b, t, j] + t.astype("float32"), "y")
    return te.create_prim_func([x, y])


def apart():
    x = te.placeholder((B, 4, T), "float32", name="x")
    return te.create_prim_func([x, te.compute((B, 4, T), lambda b, j, t: x[b, j, t] * 2.0, "y")])


@pytest.mark.parametrize(
    "func",
    [product((1, T, 8)), product((B, 1, 8)), windows(), turned(), numbered(), apart()],
    ids=["rows of all", "one row", "windows", "turned", "numbered", "apart"],
)
def test_what_is_not_one_axis(func):
    assert merged_axes(func) is None
