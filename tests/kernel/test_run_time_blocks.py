"""Blocks of places compute what the whole does, however many places there are."""

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


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_data_that_say_which_row_is_read_leave_it_alone(dtype):
    places = te.placeholder((N,), dtype, name="places")
    x = te.placeholder((N, 16), "float32", name="x")
    y = te.compute((N, 16), lambda i, j: x[places[i], j], "y")
    assert run_time_blocks(te.create_prim_func([places, x, y])) == ()


def test_what_sums_over_rows_or_makes_few_elements_is_left_alone():
    x = te.placeholder((N, 16), "float32", name="x")
    k = te.reduce_axis((0, N), "k")
    over = te.compute((16,), lambda j: te.sum(x[k, j], axis=k), "y")
    assert run_time_blocks(te.create_prim_func([x, over])) == ()

    def doubled(width):
        few = te.placeholder((N, width), "float32", name="x")
        twice = te.compute((N, width), lambda i, j: few[i, j] * 2.0, "y")
        return te.create_prim_func([few, twice])

    assert run_time_blocks(doubled(4)) == ()
    assert len(run_time_blocks(doubled(16))) == 2


def test_two_sizes_of_run_time_are_left_alone():
    m = tirx.Var("m", "int64")
    x = te.placeholder((N, m), "float32", name="x")
    k = te.reduce_axis((0, m), "k")
    y = te.compute((N,), lambda i: te.sum(x[i, k], axis=k), "y")
    assert run_time_blocks(te.create_prim_func([x, y])) == ()


@pytest.mark.parametrize(("stride", "tap"), [(1, 1), (2, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("pad", [(0, 0), (2, 2), (0, 4), (5, 1)])
def test_windows_reach_as_far_as_neighbours_are_read(stride, tap, pad):
    """Of a convolution in one dimension, whose padding is an operator of its own."""
    before, after = pad
    taps, channels = 3, 4
    x = te.placeholder((1, N, channels), "float32", name="x")
    w = te.placeholder((taps, channels, 8), "float32", name="w")
    zero = tirx.const(0, "float32")
    padded = te.compute(
        (1, N + (before + after), channels),
        lambda b, i, c: tirx.if_then_else(
            tirx.all(i >= before, i < N + before), x[b, i - before, c], zero
        ),
        "padded",
    )
    places = tirx.floordiv(N + (before + after - (taps - 1) * tap - 1), stride) + 1
    k, c = te.reduce_axis((0, taps), "k"), te.reduce_axis((0, channels), "c")
    y = te.compute(
        (1, places, 8),
        lambda b, i, j: te.sum(padded[b, i * stride + k * tap, c] * w[k, c, j], axis=[k, c]),
        "y",
    )
    func = te.create_prim_func([x, w, y])
    blocks = run_time_blocks(func)
    large, small, *_ = (each.places for each in blocks)
    assert blocks[0].windows[0][0].first == -before
    assert blocks[0].windows[0][0].length == (large - 1) * stride + (taps - 1) * tap + 1
    assert blocks[0].windows[0][0].filled
    built, stock = compiled(blocks), tvm.compile(func, "llvm")
    weight = RNG.standard_normal((taps, channels, 8)).astype("float32")
    few = blocks[-1].places * stride
    for count in (7, 7 + few, small + 1, large - 1, large, large + 9, 3 * large + 1):
        data = RNG.standard_normal((1, count, channels)).astype("float32")
        results = []
        for function in (built, stock):
            length = (count + before + after - (taps - 1) * tap - 1) // stride + 1
            result = tvm.runtime.tensor(np.full((1, length, 8), np.nan, "float32"))
            function(tvm.runtime.tensor(data), tvm.runtime.tensor(weight), result)
            results.append(result.numpy())
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_what_is_padded_after_it_was_computed_is_left_alone():
    """Outside of it there are no zeros: the window has what is computed of them."""
    x = te.placeholder((1, N), "float32", name="x")
    more = te.compute((1, N), lambda b, i: x[b, i] + 1.0, "more")
    padded = te.compute(
        (1, N + 2),
        lambda b, i: tirx.if_then_else(
            tirx.all(i >= 1, i < N + 1), more[b, i - 1], tirx.const(0, "float32")
        ),
        "padded",
    )
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((1, N), lambda b, i: te.sum(padded[b, i + k], axis=k), "y")
    assert run_time_blocks(te.create_prim_func([x, y])) == ()


def test_an_edge_that_is_repeated_is_left_alone():
    x = te.placeholder((N,), "float32", name="x")
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((N,), lambda i: te.sum(x[tirx.max(tirx.min(i + k - 1, N - 1), 0)], axis=k), "y")
    assert run_time_blocks(te.create_prim_func([x, y])) == ()


def convolved(operator, shape, weight, **options):
    """A module of one convolution of a size that is known by the name n, and what follows it."""
    sizes = [N if size == "n" else size for size in shape]
    x = relax.Var("x", relax.TensorType(sizes, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(operator(x, relax.const(weight), **options))
            y = builder.emit_output(OP.nn.relu(found))
        builder.emit_func_output(y)
    return builder.get()


CONVOLUTIONS = {
    "samples": (OP.nn.conv1d, (1, 8, "n"), (24, 8, 5), {"padding": 2}),
    "one channel": (OP.nn.conv1d, (1, 1, "n"), (1, 1, 7), {"padding": 3}),
    "few samples of many": (OP.nn.conv1d, (1, 128, "n"), (64, 128, 3), {"padding": (0, 2)}),
    "far samples": (OP.nn.conv1d, (1, 16, "n"), (16, 16, 3), {"padding": 5, "dilation": 5}),
    "several sounds": (OP.nn.conv1d, (3, 8, "n"), (8, 8, 3), {"padding": 1}),
    "every other sample": (OP.nn.conv1d, (1, 8, "n"), (16, 8, 4), {"strides": 2, "padding": 1}),
    "by channel": (OP.nn.conv1d, (1, 16, "n"), (16, 1, 3), {"padding": 1, "groups": 16}),
    "in groups": (OP.nn.conv1d, (1, 16, "n"), (32, 4, 3), {"padding": 1, "groups": 4}),
    "height": (OP.nn.conv2d, (1, 8, "n", 12), (16, 8, 3, 3), {"padding": 1}),
    "width": (OP.nn.conv2d, (1, 8, 12, "n"), (16, 8, 3, 3), {"padding": 1}),
    "not padded": (OP.nn.conv2d, (1, 8, "n", 12), (16, 8, 3, 3), {}),
    "upwards": (OP.nn.conv1d_transpose, (1, 32, "n"), (32, 16, 16), {"strides": 8, "padding": 4}),
    "upwards by few": (OP.nn.conv1d_transpose, (1, 32, "n"), (32, 2, 4), {"strides": 2}),
    "upwards in height": (OP.nn.conv2d_transpose, (1, 8, "n", 6), (8, 16, 3, 3), {"strides": 2}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_over_any_number_of_places(name):
    operator, shape, kernel, options = CONVOLUTIONS[name]
    weight = RNG.standard_normal(kernel).astype("float32") / 8
    module = convolved(operator, shape, weight, **options)
    stock = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    ours = relax.VirtualMachine(tvm_rammer.build(module, "llvm").executable, tvm.cpu())
    for count in (3, 40, 1000):
        data = RNG.standard_normal([count if s == "n" else s for s in shape]).astype("float32")
        got, wanted = (each["main"](tvm.runtime.tensor(data)).numpy() for each in (ours, stock))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_convolution_over_samples_is_no_loop_of_stock_tvm():
    weight = RNG.standard_normal((24, 8, 5)).astype("float32")
    library = tvm_rammer.build(convolved(OP.nn.conv1d, (1, 8, "n"), weight, padding=2), "llvm")
    assert "conv1d" in library.executable.as_text() and "_rammer" in library.executable.as_text()


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
