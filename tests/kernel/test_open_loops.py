"""Operators of open sizes that cannot be cut into blocks: their loops are shared out."""

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_rammer.kernel.open_loops import open_loops

H, W = (tirx.Var(name, "int64") for name in "hw")
RNG = np.random.default_rng(0)


def convolution(channels, filters, follow):
    """A window of 3 x 3 over an image of open height and width, padded, and what follows it."""
    x = te.placeholder((1, H, W, channels), "float32", name="x")
    w = te.placeholder((3, 3, channels, filters), "float32", name="w")
    padded = te.compute(
        (1, H + 2, W + 2, channels),
        lambda b, i, j, c: tirx.if_then_else(
            tirx.all(i >= 1, i <= H, j >= 1, j <= W), x[b, i - 1, j - 1, c], tirx.const(0.0)
        ),
        "padded",
    )
    over = [te.reduce_axis((0, n), name) for n, name in ((3, "r"), (3, "s"), (channels, "c"))]
    r, s, c = over
    y = te.compute(
        (1, H, W, filters),
        lambda b, i, j, f: te.sum(padded[b, i + r, j + s, c] * w[r, s, c, f], axis=over),
        "y",
    )
    if not follow:
        return te.create_prim_func([x, w, y])
    z = te.compute(y.shape, lambda *at: tirx.max(y[at], tirx.const(0.0, "float32")), "z")
    return te.create_prim_func([x, w, z])


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("filters", [1, 6, 64, 72])
def test_it_computes_the_same(filters, follow):
    func = convolution(4, filters, follow)
    made = open_loops(func, 16)
    own, stock = (tvm.compile(each, "llvm") for each in (made, func))
    for height, width in ((1, 1), (5, 9)):
        data = [(1, height, width, 4), (3, 3, 4, filters)]
        values = [tvm.runtime.tensor(RNG.standard_normal(s).astype("float32")) for s in data]
        results = []
        for function in (own, stock):
            empty = np.full((1, height, width, filters), np.nan, "float32")
            results.append(tvm.runtime.tensor(empty))
            function(*values, results[-1])
        np.testing.assert_allclose(*(each.numpy() for each in results), rtol=1e-5, atol=1e-5)


def test_loops_are_shared_out():
    text = open_loops(convolution(4, 64, True), 16).script()
    assert text.count("T.parallel") >= 2 and "T.vectorized" in text


def test_rows_of_sums():
    x = te.placeholder((H, W), "float32", name="x")
    k = te.reduce_axis((0, W), "k")
    func = te.create_prim_func([x, te.compute((H,), lambda i: te.sum(x[i, k], axis=k), "y")])
    own = tvm.compile(open_loops(func, 16), "llvm")
    for shape in ((1, 1), (7, 33), (3, 0)):
        data = RNG.standard_normal(shape).astype("float32")
        result = tvm.runtime.tensor(np.full(shape[:1], np.nan, "float32"))
        own(tvm.runtime.tensor(data), result)
        np.testing.assert_allclose(result.numpy(), data.sum(1), rtol=1e-5, atol=1e-5)


def test_a_sum_of_all():
    """Of nothing it is what a sum starts with."""
    x = te.placeholder((H, 4), "float32", name="x")
    over = te.reduce_axis((0, H), "i"), te.reduce_axis((0, 4), "j")
    total = te.compute((), lambda: te.sum(x[over[0], over[1]], axis=list(over)), "y")
    own = tvm.compile(open_loops(te.create_prim_func([x, total]), 16), "llvm")
    for rows in (5, 0, 1):
        data = RNG.standard_normal((rows, 4)).astype("float32")
        result = tvm.runtime.tensor(np.full((), np.nan, "float32"))
        own(tvm.runtime.tensor(data), result)
        np.testing.assert_allclose(result.numpy(), data.sum(), rtol=1e-5, atol=1e-5)


def test_what_is_soon_done():
    x = te.placeholder((H,), "float32", name="x")
    twice = te.compute((H,), lambda i: x[i] * 2.0, "y")
    assert open_loops(te.create_prim_func([x, twice]), 16) is None
