"""Boxes of places compute what the whole does, whatever an image's height and width are."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import tvm_rammer
from tvm_rammer.kernel.call_in_boxes import in_boxes
from tvm_rammer.kernel.run_time_boxes import run_time_boxes

RNG = np.random.default_rng(0)
OP = relax.op
NAMES = {name: tirx.Var(name, "int64") for name in "nhw"}
H, W = NAMES["h"], NAMES["w"]
#: Where there are fewer places than a box has, as many, and some that it does not divide.
SIZES = (1, 1), (2, 30), (3, 4), (4, 16), (5, 17), (9, 23), (32, 40), (0, 5), (5, 0)


def summed(read, height=H, width=W, *, taps=3, channels=8):
    """Sums of what ``read`` chooses of an image ``[h, w, 4]``, times weights."""
    x = te.placeholder((H, W, 4), "float32", name="x")
    w = te.placeholder((taps, taps, 4, channels), "float32", name="w")
    i, j = te.reduce_axis((0, taps), "i"), te.reduce_axis((0, taps), "j")
    c = te.reduce_axis((0, 4), "c")

    def element(row, column, k):
        return te.sum(read(x, row, column, i, j, c) * w[i, j, c, k], axis=[i, j, c])

    y = te.compute((height, width, channels), element, "y")
    return te.create_prim_func([x, w, y])


def inside(x, row, column, i, j, c):
    """Zeros around the image."""
    place = row + i - 1, column + j - 1
    exists = tirx.all(place[0] >= 0, place[0] < H, place[1] >= 0, place[1] < W)
    return tirx.if_then_else(exists, x[(*place, c)], tirx.const(0, "float32"))


def valid(x, row, column, i, j, c):
    return x[row + i, column + j, c]


def twice(x, row, column, i, j, c):
    return x[tirx.floordiv(row, 2), tirx.floordiv(column, 2), c]


READS = {
    "with zeros around": (inside, lambda h, w: (h, w), 0),
    "of what is there": (valid, lambda h, w: (h - 2, w - 2), 2),
    "every place twice": (twice, lambda h, w: (h * 2, w * 2), 0),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("channels", [8, 3000])
def test_a_function_of_images_is_one_of_boxes(name, channels):
    read, shape, least = READS[name]
    func = summed(read, *shape(H, W), channels=channels)
    boxes = run_time_boxes(func)
    assert boxes.in_rows == (channels == 8)
    kernels = [block.func for block in boxes.blocks]
    built = tvm.compile(in_boxes(boxes, kernels, [True] * 3), "llvm")
    stock = tvm.compile(func, "llvm")
    weight = RNG.standard_normal((3, 3, 4, channels)).astype("float32")
    for rows, columns in SIZES[:: 1 if channels == 8 else 3]:
        rows, columns = rows + least, columns + least
        data = RNG.standard_normal((rows, columns, 4)).astype("float32")
        results = []
        for function in (built, stock):
            empty = np.full((*shape(rows, columns), channels), np.nan, "float32")
            result = tvm.runtime.tensor(empty)
            function(tvm.runtime.tensor(data), tvm.runtime.tensor(weight), result)
            results.append(result.numpy())
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-4)


def test_boxes_begin_anywhere():
    """Where an image is a multiple of a box, and where it is not; windows are as wide as both."""
    boxes = run_time_boxes(summed(inside))
    assert boxes.units == (1, 1)
    assert [block.lengths for block in boxes.blocks] == [(1, 16), (1, 4), (1, 1)]
    rows, columns = boxes.rows[0].windows[0]
    assert (rows.first, rows.length, rows.filled) == (-1, 3, True)
    assert (columns.first, columns.length, columns.filled) == (-1, 18, True)


def test_boxes_are_of_whole_units():
    boxes = run_time_boxes(summed(twice, H * 2, W * 2))
    assert boxes.units == (2, 2)
    assert [block.lengths for block in boxes.blocks] == [(2, 32), (2, 8), (2, 2)]


@pytest.mark.parametrize(
    "func",
    [
        pytest.param(summed(lambda x, r, q, i, j, c: x[H - 1 - r, q, c]), id="from the end"),
        pytest.param(summed(lambda x, r, q, i, j, c: x[r, q, (c + W) % 4]), id="how many"),
        pytest.param(summed(lambda x, r, q, i, j, c: x[r, q, (c + q) % 4]), id="which place"),
        pytest.param(summed(lambda x, r, q, i, j, c: x[r, tirx.max(q - i, 0), c]), id="an edge"),
        pytest.param(summed(lambda x, r, q, i, j, c: x[r, 5, c], H, 12), id="one open axis"),
        pytest.param(
            summed(lambda x, r, q, i, j, c: x[tirx.floordiv(r, 2), q, c]), id="half a place"
        ),
    ],
)
def test_what_is_no_box_is_left_alone(func):
    assert run_time_boxes(func) is None


def test_what_sums_nothing_is_left_alone():
    x = te.placeholder((H, W, 16), "float32", name="x")
    y = te.compute((H, W, 16), lambda i, j, c: x[i, j, c] * 2.0, "y")
    assert run_time_boxes(te.create_prim_func([x, y])) is None


def of_names(shape):
    return [NAMES.get(size, size) for size in shape]


def module_of(operator, shape, *weights, **options):
    """A module of one operator of open sizes, and what follows it."""
    x = relax.Var("x", relax.TensorType(of_names(shape), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(operator(x, *map(relax.const, weights), **options))
            y = builder.emit_output(OP.nn.relu(found))
        builder.emit_func_output(y)
    return builder.get()


IMAGES = (1, 8, "h", "w")
OPERATORS = {
    "images": (OP.nn.conv2d, IMAGES, [(24, 8, 3, 3)], {"padding": 1}),
    "several images": (OP.nn.conv2d, ("n", 8, "h", "w"), [(16, 8, 3, 3)], {"padding": 1}),
    "squares": (OP.nn.conv2d, (1, 8, "h", "h"), [(16, 8, 3, 3)], {"padding": 1}),
    "many channels": (OP.nn.conv2d, (1, 96, "h", "w"), [(96, 96, 3, 3)], {"padding": 1}),
    "every other": (OP.nn.conv2d, IMAGES, [(16, 8, 3, 3)], {"padding": 1, "strides": 2}),
    "points of every other": (OP.nn.conv2d, IMAGES, [(16, 8, 1, 1)], {"strides": 2}),
    "uneven padding": (OP.nn.conv2d, IMAGES, [(16, 8, 5, 3)], {"padding": (2, 0, 3, 2)}),
    "far": (OP.nn.conv2d, IMAGES, [(16, 8, 3, 3)], {"padding": 3, "dilation": 3}),
    "by channel": (OP.nn.conv2d, IMAGES, [(8, 1, 5, 5)], {"padding": 2, "groups": 8}),
    "in groups": (OP.nn.conv2d, IMAGES, [(16, 2, 3, 3)], {"padding": 1, "groups": 4}),
    "upwards": (OP.nn.conv2d_transpose, IMAGES, [(8, 16, 4, 4)], {"strides": 2, "padding": 1}),
    "sounds": (OP.nn.conv1d, ("n", 8, "w"), [(24, 8, 5)], {"padding": 2}),
    "the largest": (OP.nn.max_pool2d, IMAGES, [], {"pool_size": 3, "strides": 2, "padding": 1}),
    "means": (OP.nn.avg_pool2d, IMAGES, [], {"pool_size": 3, "padding": 1}),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_over_images_of_any_size(name):
    operator, shape, kernels, options = OPERATORS[name]
    weights = [RNG.standard_normal(kernel).astype("float32") / 8 for kernel in kernels]
    module = module_of(operator, shape, *weights, **options)
    stock = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    ours = relax.VirtualMachine(tvm_rammer.build(module).executable, tvm.cpu())
    for n, h, w in ((1, 3, 3), (2, 9, 23), (1, 40, 5), (3, 4, 64)):
        sizes = {"n": n, "h": h, "w": w}
        data = RNG.standard_normal([sizes.get(size, size) for size in shape]).astype("float32")
        got, wanted = (each["main"](tvm.runtime.tensor(data)).numpy() for each in (ours, stock))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_the_same_bits_every_time():
    """Boxes that overlap are computed by one core."""
    weight = RNG.standard_normal((16, 8, 3, 3)).astype("float32")
    module = module_of(OP.nn.conv2d, IMAGES, weight, padding=1)
    ours = relax.VirtualMachine(tvm_rammer.build(module).executable, tvm.cpu())
    data = tvm.runtime.tensor(RNG.standard_normal((1, 8, 31, 37)).astype("float32"))
    first = ours["main"](data).numpy()
    for _ in range(50):
        np.testing.assert_array_equal(ours["main"](data).numpy(), first)


def test_products_of_two_open_sizes():
    x = relax.Var("x", relax.TensorType((2, H, 24), "float32"))
    y = relax.Var("y", relax.TensorType((2, 24, W), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            z = builder.emit_output(OP.matmul(x, y))
        builder.emit_func_output(z)
    ours = relax.VirtualMachine(tvm_rammer.build(builder.get()).executable, tvm.cpu())
    for rows, columns in SIZES:
        left = RNG.standard_normal((2, rows, 24)).astype("float32")
        right = RNG.standard_normal((2, 24, columns)).astype("float32")
        got = ours["main"](tvm.runtime.tensor(left), tvm.runtime.tensor(right)).numpy()
        np.testing.assert_allclose(got, left @ right, rtol=1e-4, atol=1e-4)
