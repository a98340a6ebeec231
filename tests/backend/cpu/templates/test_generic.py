"""Whatever Relax legalizes runs and agrees with numpy: the generic rule never declines."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_runs import VDEVICES, numbers, run_prim_func, run_relax
from tvm import relax, te, tirx, topi

OP = relax.op
QUICK = settings(max_examples=15)

shapes = st.lists(st.sampled_from([1, 2, 3, 5, 8, 16, 33]), max_size=4).map(tuple)
vdevices = st.sampled_from(VDEVICES)


@QUICK
@given(
    shape=shapes,
    dtype=st.sampled_from(["float32", "float64", "float16", "int8", "int32", "int64", "uint8"]),
    vdevice=vdevices,
)
@example(shape=(), dtype="int64", vdevice=VDEVICES[0])
@example(shape=(3, 0, 2), dtype="float32", vdevice=VDEVICES[0])
@example(shape=(0,), dtype="int8", vdevice=VDEVICES[0])
def test_element_wise(shape, dtype, vdevice):
    """A chain of element-wise operators is one stage, of any shape down to none at all."""
    a, b = numbers(shape, dtype), numbers(shape, dtype, seed=1)
    (out,), origins = run_relax(
        lambda a, b: OP.maximum(OP.add(OP.multiply(a, b), a), b), a, b, vdevice=vdevice
    )
    assert out.dtype == dtype
    assert_close(out, np.maximum(a * b + a, b), 1e-2 if dtype == "float16" else 1e-6)
    assert origins == ["elementwise" if a.size else "generic"]


@QUICK
@given(shape=shapes, other=st.lists(st.booleans(), min_size=4, max_size=4), vdevice=vdevices)
def test_broadcasting(shape, other, vdevice):
    """Any set of axes of length one is stretched; leading ones may be missing."""
    a = numbers(shape)
    b = numbers(tuple(1 if one else n for n, one in zip(shape, other, strict=False)), seed=1)
    b = b[0] if other[-1] and b.ndim and b.shape[0] == 1 else b
    (out,), _ = run_relax(lambda a, b: OP.subtract(a, b), a, b, vdevice=vdevice)
    assert_close(out, a - b)


@QUICK
@given(data=st.data(), shape=shapes, vdevice=vdevices)
def test_reductions(data, shape, vdevice):
    """Sum, product, maximum and mean over any axes, all of them too, with a prologue."""
    axes = data.draw(st.sets(st.integers(0, max(len(shape) - 1, 0)), max_size=len(shape)))
    axes = tuple(sorted(axes)) or None
    keepdims = data.draw(st.booleans())
    name = data.draw(st.sampled_from(["sum", "prod", "max", "mean"]))
    a = numbers(shape, "float64")

    def reduce(a):
        return getattr(OP, name)(OP.abs(a), list(axes) if axes else None, keepdims)

    (out,), _ = run_relax(reduce, a, vdevice=vdevice)
    assert_close(out, getattr(np, name)(np.abs(a), axis=axes, keepdims=keepdims), 1e-12)


@QUICK
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 40)),
    axis=st.integers(0, 1),
    dtype=st.sampled_from(["float32", "float64", "float16"]),
    vdevice=vdevices,
)
def test_softmax(shape, axis, dtype, vdevice):
    """Several stages with buffers between them."""
    x = numbers(shape, dtype)
    (out,), _ = run_relax(lambda x: OP.nn.softmax(x, axis), x, vdevice=vdevice)
    assert_close(out, softmax(x.astype("float64"), axis), 2e-3 if dtype == "float16" else 1e-6)


@QUICK
@given(data=st.data(), shape=shapes.filter(len), vdevice=vdevices)
def test_transpositions(data, shape, vdevice):
    """Any permutation of the axes."""
    axes = data.draw(st.permutations(range(len(shape))))
    x = numbers(shape, "int32")
    (out,), _ = run_relax(lambda x: OP.permute_dims(x, axes), x, vdevice=vdevice)
    assert_close(out, x.transpose(axes))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x, gamma, beta):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta


def scatter(x, indices, updates):
    out = x.copy()
    np.put_along_axis(out, indices, updates, 1)
    return out


X, Y = numbers((7, 16)), numbers((7, 16), seed=1)
IMAGE = numbers((1, 4, 8, 8))
WINDOWS = np.lib.stride_tricks.sliding_window_view(IMAGE, (2, 2), axis=(2, 3))[:, :, ::2, ::2]
#: name: (Relax, numpy, inputs)
OPERATORS = {
    "where": (OP.where, np.where, [numbers((7, 16), "bool"), X, Y]),
    "where_int64": (
        OP.where,
        np.where,
        [numbers((7, 16), "bool"), *(numbers((7, 16), "int64", s) for s in (1, 2))],
    ),
    "logical_and": (
        OP.logical_and,
        np.logical_and,
        [numbers((5, 33), "bool"), numbers((5, 33), "bool", seed=1)],
    ),
    "compare": (OP.less, np.less, [X, Y]),
    "cast_to_int8": (lambda x: OP.astype(x, "int8"), lambda x: x.astype("int8"), [X]),
    "cast_to_bool": (
        lambda x: OP.astype(x, "bool"),
        lambda x: x.astype(bool),
        [numbers((5, 16), "int32")],
    ),
    "bfloat16": (
        lambda x: OP.astype(OP.add(OP.astype(x, "bfloat16"), OP.astype(x, "bfloat16")), "float32"),
        lambda x: x + x,
        [numbers((5, 16), "int8").astype("float32")],
    ),
    "floor_mod": (OP.floor_mod, np.mod, [numbers((5, 16), "int32"), np.full((16,), 3, "int32")]),
    "bitwise_and": (
        OP.bitwise_and,
        np.bitwise_and,
        [numbers((5, 16), "uint8"), numbers((5, 16), "uint8", seed=1)],
    ),
    "take": (
        lambda x, i: OP.take(x, i, 0, mode="clip"),
        lambda x, i: x[i],
        [X, np.array([6, 0, 0, 3], "int64")],
    ),
    "gather_elements": (
        lambda x, i: OP.gather_elements(x, i, 1),
        lambda x, i: np.take_along_axis(x, i, 1),
        [X, numbers((7, 3), "uint8").astype("int64")],
    ),
    "gather_nd": (
        OP.gather_nd,
        lambda x, i: x[i[:, 0], i[:, 1]],
        [X, np.array([[0, 3], [6, 15], [2, 2]], "int64")],
    ),
    "scatter_elements": (
        lambda x, i, u: OP.scatter_elements(x, i, u, 1),
        scatter,
        [X, np.array([[1, 5]] * 7, "int64"), numbers((7, 2), seed=2)],
    ),
    "one_hot": (
        lambda i: OP.one_hot(
            i, *(relax.prim_value(tirx.const(v, "float32")) for v in (1, 0)), 8, -1
        ),
        lambda i: np.eye(8, dtype="float32")[i],
        [np.array([7, 0, 3], "int64")],
    ),
    "argmax": (lambda x: OP.argmax(x, 1), lambda x: x.argmax(1), [X]),
    "argmax_of_all": (OP.argmax, np.argmax, [X]),
    "argmin": (
        lambda x: OP.argmin(x, 0, True),
        lambda x: x.argmin(0, keepdims=True),
        [numbers((5, 16), "int32")],
    ),
    "cumsum": (lambda x: OP.cumsum(x, 1), lambda x: x.cumsum(1), [X]),
    "cumsum_of_all": (OP.cumsum, np.cumsum, [numbers((5, 16), "int64")]),
    "cumprod": (lambda x: OP.cumprod(x, 0), lambda x: x.cumprod(0), [X]),
    "concat": (
        lambda a, b: OP.concat([a, b, a], 1),
        lambda a, b: np.concatenate([a, b, a], 1),
        [X, numbers((7, 5), seed=1)],
    ),
    "concat_nothing": (
        lambda a, b: OP.concat([a, b], 1),
        lambda a, b: np.concatenate([a, b], 1),
        [numbers((7, 0)), Y],
    ),
    "concat_rows": (
        lambda a, b: OP.concat([a, b], 0),
        lambda a, b: np.concatenate([a, b], 0),
        [numbers((3, 16), "int8"), numbers((2, 16), "int8", seed=1)],
    ),
    "stack": (lambda a, b: OP.stack([a, b], 1), lambda a, b: np.stack([a, b], 1), [X, Y]),
    "split": (
        lambda x: _parts(OP.split(x, [3, 9], 1), 3),
        lambda x: np.split(x, [3, 9], 1),
        [X],
    ),
    "pad": (
        lambda x: OP.nn.pad(x, [1, 2, 0, 3]),
        lambda x: np.pad(x, ((1, 2), (0, 3))),
        [X],
    ),
    "tile": (lambda x: OP.tile(x, [2, 3]), lambda x: np.tile(x, (2, 3)), [X]),
    "repeat": (lambda x: OP.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1), [X]),
    "flip": (lambda x: OP.flip(x, 1), lambda x: x[:, ::-1], [X]),
    "strided_slice": (
        lambda x: OP.strided_slice(x, [1], [1], [12], [3]),
        lambda x: x[:, 1:12:3],
        [X],
    ),
    "reshape": (lambda x: OP.reshape(x, (4, 28)), lambda x: x.reshape(4, 28), [X]),
    "broadcast_to": (
        lambda x: OP.broadcast_to(x, (3, 7, 16)),
        lambda x: np.broadcast_to(x, (3, 7, 16)),
        [X],
    ),
    "triu": (lambda x: OP.triu(x, 1), lambda x: np.triu(x, 1), [X]),
    "gelu_tanh": (
        lambda x: OP.nn.gelu_tanh(x),
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        [X],
    ),
    "sigmoid": (OP.sigmoid, lambda x: 1 / (1 + np.exp(-x)), [X]),
    "layer_norm": (
        lambda x, g, b: OP.nn.layer_norm(x, g, b, -1),
        layer_norm,
        [X, numbers((16,)), numbers((16,), seed=1)],
    ),
    "variance": (lambda x: OP.variance(x, [0]), lambda x: x.var(0), [X]),
    "max_pool": (lambda x: OP.nn.max_pool2d(x, 2, 2), lambda x: WINDOWS.max((-1, -2)), [IMAGE]),
    "avg_pool": (lambda x: OP.nn.avg_pool2d(x, 2, 2), lambda x: WINDOWS.mean((-1, -2)), [IMAGE]),
    "global_pool": (
        lambda x: OP.mean(x, [2, 3], True),
        lambda x: x.mean((2, 3), keepdims=True),
        [IMAGE],
    ),
    "resize": (
        lambda x: OP.image.resize2d(
            x,
            (16, 16),
            layout="NCHW",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        ),
        lambda x: x.repeat(2, 2).repeat(2, 3),
        [IMAGE],
    ),
    "product_summed": (
        lambda a, b: OP.sum(OP.multiply(a, b), 0),
        lambda a, b: (a * b).sum(0),
        [X, Y],
    ),
    "einsum": (lambda a, b: OP.einsum([a, b], "ij,kj->ik"), lambda a, b: a @ b.T, [X, Y]),
    "outer": (OP.outer, np.outer, [numbers((5,)), numbers((16,))]),
}


def _parts(tuple_of_tensors, count):
    return [tuple_of_tensors[k] for k in range(count)]


@pytest.mark.parametrize("vdevice", VDEVICES[::2], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name, vdevice):
    build, reference, inputs = OPERATORS[name]
    results, _ = run_relax(build, *inputs, vdevice=vdevice)
    wanted = reference(*inputs)
    wanted = wanted if isinstance(wanted, list) else [wanted]
    assert len(results) == len(wanted)
    for got, want in zip(results, wanted, strict=True):
        assert_close(got, want)


@pytest.mark.parametrize("product", [True, False], ids=["product", "pool"])
def test_a_sum_that_is_a_result_itself(product):
    """What is computed for the caller is not only a step to something else."""
    shape = (6, 8) if product else (1, 7, 7, 8)
    x = numbers(shape)
    data = te.placeholder(shape, name="x")
    step = te.reduce_axis((0, 8))
    first = (
        te.compute((6, 6), lambda i, j: te.sum(data[i, step] * data[j, step], step))
        if product
        else topi.nn.pool2d(data, [3, 3], [1, 1], [1, 1], [0] * 4, "max", layout="NHWC")
    )
    func = te.create_prim_func([data, first, topi.nn.relu(first)])
    sums, positive = run_prim_func(func, [x]).outputs
    assert np.isfinite(sums).all()
    np.testing.assert_array_equal(positive, np.maximum(sums, 0))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3), (3, 1), (0, 3), (4, 64)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_row_of_infinities_stays_one(shape, axis, dtype):
    """The largest of nothing is minus infinity, and not the least of finite numbers."""
    if not shape[axis] and not shape[1 - axis]:
        return
    x = np.full(shape, -np.inf, dtype)
    if x.size:
        x[-1, -1] = 1
    (most,), _ = run_relax(lambda x: OP.max(x, axis), x)
    (least,), _ = run_relax(lambda x: OP.min(OP.negative(x), axis), x)
    want = np.max(x, axis, initial=-np.inf)
    np.testing.assert_array_equal(most, want)
    np.testing.assert_array_equal(least, -want)
