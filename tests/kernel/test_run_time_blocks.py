"""Blocks of rows compute what the whole does, however many rows there are."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import tvm_rammer
from tvm_rammer.kernel.call_in_blocks import in_blocks
from tvm_rammer.kernel.run_time_blocks import run_time_blocks

RNG = np.random.default_rng(0)
N = tirx.Var("n", "int64")
OP = relax.op


def summed(row, column, *, width=8, rows=N):
    """Sums of rows: what ``row`` and ``column`` make of the places of a result and of the sum."""
    x = te.placeholder((rows, 16), "float32", name="x")
    k = te.reduce_axis((0, 16), "k")
    y = te.compute((rows, width), lambda i, j: te.sum(x[row(i), column(k, j)], axis=k), "y")
    return te.create_prim_func([x, y])


def compiled(blocks):
    """The whole function, whose kernels are plain loops."""
    functions = [each.func for each in blocks]
    return tvm.compile(in_blocks(blocks, functions, [True] * len(blocks[0].windows)), "llvm")


def test_a_function_of_rows_is_one_of_some():
    blocks = run_time_blocks(summed(lambda i: i, lambda k, j: k))
    built = compiled(blocks)
    for rows in (0, 1, 63, 64, 65, 200):
        x = RNG.standard_normal((rows, 16)).astype("float32")
        y = tvm.runtime.tensor(np.zeros((rows, 8), "float32"))
        built(tvm.runtime.tensor(x), y)
        wanted = np.repeat(x.sum(1, keepdims=True), 8, 1)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_rows_may_say_which_places_of_another_tensor_are_summed():
    places = te.placeholder((N, 3), "int32", name="places")
    x = te.placeholder((50, 8), "float32", name="x")
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((N, 8), lambda i, j: te.sum(x[places[i, k], j], axis=k), "y")
    blocks = run_time_blocks(te.create_prim_func([places, x, y]))
    built = compiled(blocks)
    data = RNG.standard_normal((50, 8)).astype("float32")
    for rows in (1, 70):
        chosen = RNG.integers(0, 50, (rows, 3)).astype("int32")
        result = tvm.runtime.tensor(np.zeros((rows, 8), "float32"))
        built(tvm.runtime.tensor(chosen), tvm.runtime.tensor(data), result)
        np.testing.assert_allclose(result.numpy(), data[chosen].sum(1), rtol=1e-5, atol=1e-6)


def test_wide_rows_are_computed_one_by_one():
    blocks = run_time_blocks(summed(lambda i: i, lambda k, j: k, width=1 << 16))
    assert [each.places for each in blocks] == [1]


@pytest.mark.parametrize(
    "func",
    [
        pytest.param(summed(lambda i: i, lambda k, j: k, rows=10), id="known"),
        pytest.param(summed(lambda i: N - 1 - i, lambda k, j: k), id="from the end"),
        pytest.param(summed(lambda i: tirx.max(i - 1, 0), lambda k, j: k), id="another row"),
        pytest.param(summed(lambda i: i, lambda k, j: (k + N) % 16), id="how many rows"),
    ],
)
def test_what_depends_on_other_rows_or_their_number_is_left_alone(func):
    assert run_time_blocks(func) == ()


def test_what_depends_on_the_number_of_its_row_is_left_alone():
    x = te.placeholder((N, 16), "float32", name="x")
    k = te.reduce_axis((0, 16), "k")
    y = te.compute((N,), lambda i: te.sum(x[i, k] * i.astype("float32"), axis=k), "y")
    assert run_time_blocks(te.create_prim_func([x, y])) == ()


def test_what_sums_over_rows_or_sums_nothing_is_left_alone():
    x = te.placeholder((N, 16), "float32", name="x")
    k = te.reduce_axis((0, N), "k")
    over = te.compute((16,), lambda j: te.sum(x[k, j], axis=k), "y")
    assert run_time_blocks(te.create_prim_func([x, over])) == ()
    twice = te.compute((N, 16), lambda i, j: x[i, j] * 2.0, "y")
    assert run_time_blocks(te.create_prim_func([x, twice])) == ()


def test_two_sizes_of_run_time_are_left_alone():
    m = tirx.Var("m", "int64")
    x = te.placeholder((N, m), "float32", name="x")
    k = te.reduce_axis((0, m), "k")
    y = te.compute((N,), lambda i: te.sum(x[i, k], axis=k), "y")
    assert run_time_blocks(te.create_prim_func([x, y])) == ()


def run(module, *arrays):
    machine = relax.VirtualMachine(tvm_rammer.build(module, "llvm").executable, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 100])
def test_products_in_a_build(rows):
    w = RNG.standard_normal((300, 1000)).astype("float32") / 17
    x = relax.Var("x", relax.TensorType((N, 300), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(OP.matmul(x, relax.const(w)))
            y = builder.emit_output(OP.nn.relu(product))
        builder.emit_func_output(y)
    data = RNG.standard_normal((rows, 300)).astype("float32")
    np.testing.assert_allclose(run(builder.get(), data), np.maximum(data @ w, 0), atol=1e-4)


def test_convolutions_in_a_build():
    w = RNG.standard_normal((32, 16, 3, 3)).astype("float32") / 12
    x = relax.Var("x", relax.TensorType((N, 16, 9, 9), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(OP.nn.conv2d(x, relax.const(w), padding=1))
        builder.emit_func_output(y)
    module = builder.get()
    stock = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    for images in (3, 1):
        data = RNG.standard_normal((images, 16, 9, 9)).astype("float32")
        wanted = stock["main"](tvm.runtime.tensor(data)).numpy()
        np.testing.assert_allclose(run(module, data), wanted, atol=1e-4)
