"""Matrix products agree with numpy, and only products are taken."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_runs import (
    HOST,
    VDEVICES,
    constant,
    legalized_func,
    numbers,
    run_prim_func,
    run_relax,
    target_of,
)
from tvm import relax, te, topi

from tvm_rammer.backend.cpu.templates.outer_product_rules import Matmul
from tvm_rammer.backend.cpu.templates.select import schedule
from tvm_rammer.kernel.code_size import code_size

OP = relax.op
QUICK = settings(max_examples=15)

rows = st.integers(1, 40)
depths = st.integers(1, 33)
columns = st.one_of(st.integers(1, 140), st.sampled_from([16, 48, 128]))
vdevices = st.sampled_from(VDEVICES)


@QUICK
@given(m=rows, k=depths, n=columns, transposed=st.booleans(), vdevice=vdevices)
@example(m=1, k=1, n=1, transposed=False, vdevice=VDEVICES[0])
@example(m=17, k=3, n=128, transposed=True, vdevice=VDEVICES[0])
def test_constant_weights(m, k, n, transposed, vdevice):
    """Weights [K, N] and [N, K] are packed, whatever M, N and K are."""
    x, w = numbers((m, k)), numbers((n, k) if transposed else (k, n), seed=1)

    def product(x):
        return OP.matmul(x, OP.permute_dims(constant(w)) if transposed else constant(w))

    (out,), origins = run_relax(product, x, vdevice=vdevice)
    assert_close(out, x @ (w.T if transposed else w))
    if not transposed:  # A transposition of a constant is folded by Prepare, not by these passes.
        assert origins == ["matmul"]


@settings(max_examples=6, deadline=None)
@given(m=st.integers(1, 9), k=st.integers(900, 3000), n=st.integers(1, 40), vdevice=vdevices)
@example(m=1, k=1025, n=16, vdevice=VDEVICES[0])
@example(m=3, k=2039, n=5, vdevice=VDEVICES[0])
def test_long_sums(m, k, n, vdevice):
    """Blocks of a long sum cover it, whether or not its length has a suitable divisor."""
    x, w = numbers((m, k)), numbers((k, n), seed=1)
    (out,), _ = run_relax(lambda x: OP.matmul(x, constant(w)), x, vdevice=vdevice)
    assert_close(out, x.astype(np.float64) @ w)


@pytest.mark.parametrize("k", [2048, 25088])
def test_long_sums_are_exact(k):
    """In blocks they have less than half of the error of one chain of additions."""
    x, w = np.abs(numbers((4, k))), numbers((k, 64), seed=1)
    want = x.astype(np.float64) @ w
    chain = np.add.accumulate(x[:, :, None] * w, axis=1)[:, -1]
    (out,), _ = run_relax(lambda x: OP.matmul(x, constant(w)), x)
    assert np.linalg.norm(out - want) < np.linalg.norm(chain - want) / 2


@QUICK
@given(m=rows, k=depths, n=columns, vdevice=vdevices)
def test_transposed_weights(m, k, n, vdevice):
    """``x @ w.T`` as one PrimFunc: weights that are no constants are packed when it runs."""
    x, w = numbers((m, k)), numbers((n, k), seed=1)
    a, b = te.placeholder((m, k), name="a"), te.placeholder((n, k), name="b")
    func = te.create_prim_func([a, b, topi.nn.matmul(a, b, transpose_b=True)])
    for constants in ((), (1,)):
        run = run_prim_func(func, [x, w], constants, vdevice)
        assert_close(run.outputs[0], x @ w.T)
        along = not constants and m <= 4 and k >= max(2, vdevice.vector_bytes // 16)
        assert run.origin == ("reduction" if along else "matmul")
        assert len(run.tiles) == (1 if constants or along else 2)


@pytest.mark.parametrize(
    ("shape", "dtype", "origin"),
    [
        ((1, 129, 64), "float32", "reduction"),
        ((4, 40, 64), "float32", "reduction"),
        ((5, 40, 64), "float32", "matmul"),
        ((1, 40, 1), "float32", "matmul"),
        ((2, 40, 64), "float64", "reduction"),
        ((2, 40, 64), "float16", "matmul"),
    ],
)
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_few_rows_take_sums_along_a_transposed_matrix(shape, dtype, origin, vdevice):
    """Where packing it costs more than all products, and vectors can run along its rows."""
    m, n, k = shape
    x, w = numbers((m, k), dtype), numbers((n, k), dtype, seed=1)
    a, b = (te.placeholder(v.shape, dtype, name=name) for name, v in (("a", x), ("b", w)))
    func = te.create_prim_func([a, b, topi.nn.matmul(a, b, transpose_b=True)])
    run = run_prim_func(func, [x, w], vdevice=vdevice)
    assert_close(run.outputs[0], x.astype("float64") @ w.T, 2e-2 if dtype == "float16" else 1e-5)
    assert run.origin == origin


@QUICK
@given(
    batch=st.sampled_from([((), ()), ((2,), (2,)), ((3,), ()), ((2, 1), (3,)), ((), (2, 2))]),
    m=st.integers(1, 9),
    k=st.integers(1, 9),
    n=st.one_of(st.integers(1, 33), st.sampled_from([8, 16, 32])),
    vdevice=vdevices,
)
def test_batches_and_broadcasting(batch, m, k, n, vdevice):
    """Neither operand is a constant; batch axes broadcast."""
    a, b = numbers((*batch[0], m, k)), numbers((*batch[1], k, n), seed=1)
    (out,), _ = run_relax(OP.matmul, a, b, vdevice=vdevice)
    assert_close(out, a @ b)


@QUICK
@given(
    shapes=st.sampled_from([((7,), (7, 16)), ((5, 7), (7,)), ((7,), (7,)), ((2, 3, 7), (7,))]),
    vdevice=vdevices,
)
def test_vectors(shapes, vdevice):
    """Vector times matrix, matrix times vector, dot product."""
    a, b = numbers(shapes[0]), numbers(shapes[1], seed=1)
    (out,), _ = run_relax(OP.matmul, a, b, vdevice=vdevice)
    assert_close(out, a @ b)


@QUICK
@given(m=rows, n=st.sampled_from([3, 16, 48]), constant_weights=st.booleans(), vdevice=vdevices)
def test_epilogue(m, n, constant_weights, vdevice):
    """Bias, activation and a residual are computed on the tile, in one stage."""
    x, w, bias = numbers((m, 12)), numbers((12, n), seed=1), numbers((n,), seed=2)
    residual = numbers((m, n), seed=3)

    def dense(x, residual, *weights):
        product = OP.matmul(x, constant(w) if constant_weights else weights[0])
        return OP.add(OP.nn.relu(OP.add(product, constant(bias))), residual)

    inputs = [x, residual] if constant_weights else [x, residual, w]
    func = legalized_func(dense, *inputs)
    (out,), _ = run_relax(dense, *inputs, vdevice=vdevice)
    assert_close(out, np.maximum(x @ w + bias, 0) + residual)
    assert len(func.params) == 5


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "int8"])
def test_dtypes(dtype):
    """Any dtype is correct, also where the accumulators are wider than float32."""
    a, b = numbers((21, 9), dtype), numbers((9, 64), dtype, seed=1)
    (out,), _ = run_relax(OP.matmul, a, b)
    assert out.dtype == dtype
    tolerance = {"float16": 5e-3, "float64": 1e-12}.get(dtype, 0)
    assert_close(out, (a.astype("float64") @ b.astype("float64")).astype(dtype), tolerance)


def test_mixed_dtypes():
    """int8 inputs with an int32 result."""
    a, b = numbers((5, 9), "int8"), numbers((9, 16), "int8", seed=1)
    (out,), _ = run_relax(lambda a, b: OP.matmul(a, b, out_dtype="int32"), a, b)
    np.testing.assert_array_equal(out, a.astype("int32") @ b)


def test_converted_factors():
    """float16 factors are multiplied and summed up as float32."""
    a, b = numbers((5, 9), "float16"), numbers((9, 20), "float16", seed=1)
    (out,), origins = run_relax(lambda a, b: OP.matmul(a, b, out_dtype="float32"), a, b)
    assert_close(out, a.astype("float32") @ b.astype("float32"))
    assert origins == ["matmul"]


def test_result_that_repeats_the_product():
    """The epilogue adds a tensor with an axis more than the product has."""
    a, b, wide = numbers((3, 5)), numbers((5, 21), seed=1), numbers((4, 3, 21), seed=2)
    (out,), origins = run_relax(lambda a, b, c: OP.add(OP.matmul(a, b), c), a, b, wide)
    assert_close(out, a @ b + wide)
    assert origins == ["matmul"]


@pytest.mark.parametrize("vdevice", VDEVICES)
@pytest.mark.parametrize(
    ("axes", "shape"),
    [((1, 2), (19, 3, 21)), ((0, 1), (3, 21, 37)), ((0, 2), (3, 5, 21, 2)), ((1, 0), (21, 3, 16))],
)
def test_result_that_repeats_the_product_often(axes, shape, vdevice):
    """Its stores are loops: no more statements for more repeats.

    ``axes`` of the result are those of the product.
    """
    a, b, wide = numbers((3, 600)), numbers((600, 21), seed=1), numbers(shape, seed=2)
    func = repeating_product(axes, shape)
    run = run_prim_func(func, [a, b, wide], (1,), vdevice)
    product = a.astype("float64") @ b
    missing = tuple(sorted(set(range(len(shape))) - set(axes)))
    product = np.expand_dims(product if axes[0] < axes[1] else product.T, missing)
    assert_close(run.outputs[0], product * wide)
    assert run.origin == "matmul"
    longer = tuple(n if k in axes else 10 * n for k, n in enumerate(shape))
    with target_of(vdevice):
        scheduled = schedule(repeating_product(axes, longer), frozenset([1]), vdevice)
    assert code_size(scheduled.func.body).statements < 150


def repeating_product(axes, shape):
    """A product of matrices, times a tensor with more axes than it has."""
    a, b = te.placeholder((3, 600), name="a"), te.placeholder((600, 21), name="b")
    wide = te.placeholder(shape, name="wide")
    product = topi.matmul(a, b)

    def element(*places):
        return product(*(places[axis] for axis in axes)) * wide(*places)

    return te.create_prim_func([a, b, wide, te.compute(shape, element)])


def test_square_of_a_matrix():
    """Both operands are one buffer."""
    a = numbers((16, 16))
    (out,), origins = run_relax(lambda a: OP.matmul(a, a), a)
    assert_close(out, a @ a)
    assert origins == ["matmul"]


def test_weights_that_the_epilogue_reads_too():
    """Tied weights: only the kernel itself may pack what is also read as it is."""
    x, w = numbers((16, 16)), numbers((16, 16), seed=1)
    weights = constant(w)
    (out,), origins = run_relax(lambda x: OP.add(OP.matmul(x, weights), weights), x)
    assert_close(out, x @ w + w)
    assert origins == ["matmul"]


@pytest.mark.parametrize("constants", [(), (0,), (1,), (0, 1)])
def test_parameters_with_one_name(constants):
    """Which parameter is packed is decided by identity: names need not differ."""
    x, w = numbers((16, 16)), numbers((16, 16), seed=1)
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="A")
    func = te.create_prim_func([a, b, topi.add(topi.matmul(a, b), a)])
    run = run_prim_func(func, [x, w], constants)
    assert_close(run.outputs[0], x @ w + x)
    assert [number for number, _ in run.kernel.packings] == [k for k in constants if k == 1]


def test_packed_weights_are_read_along_vectors():
    """A constant weight [K, N] becomes [N / lanes, K, lanes]; the parameter says so."""
    func = legalized_func(lambda x: OP.matmul(x, constant(numbers((12, 48)))), numbers((4, 12)))
    scheduled = Matmul().apply(func, frozenset([1]), VDEVICES[0])
    assert [int(extent) for extent in scheduled.func.params[1].shape] == [3, 12, 16]
    assert scheduled.origin == "matmul"
    ((position, packing),) = scheduled.packings
    weights = numbers((12, 48))
    assert position == 1
    np.testing.assert_array_equal(packing(weights)[2, :, 5], weights[:, 37])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("m", [1, 7])
def test_weights_of_16_bits_are_packed_as_they_are(dtype, m):
    """In a decoder they come from memory: along vectors, and half as many bytes."""
    x, w = numbers((m, 24)), numbers((24, 40), seed=1).astype(dtype)
    a, b = te.placeholder(x.shape, "float32"), te.placeholder(w.shape, w.dtype.name)
    k = te.reduce_axis((0, 24))
    product = te.compute((m, 40), lambda i, j: te.sum(a[i, k] * b[k, j].astype("float32"), axis=k))
    run = run_prim_func(te.create_prim_func([a, b, product]), [x, w], [1])
    assert run.origin == "matmul"
    ((position, packing),) = run.kernel.packings
    assert (position, packing(w).dtype) == (1, w.dtype)
    assert_close(run.outputs[0], x @ w.astype("float32"))


def test_ragged_columns_are_computed_twice():
    """The last vectors overlap: all are full, and no lane needs a condition."""
    func = legalized_func(lambda x: OP.matmul(x, constant(numbers((12, 40)))), numbers((4, 12)))
    scheduled = Matmul().apply(func, frozenset([1]), VDEVICES[0])
    ((_, packing),) = scheduled.packings
    weights = numbers((12, 40))
    assert str(scheduled.tiling) == "4 x 3 vectors of 16"
    np.testing.assert_array_equal(packing(weights)[2, :, 0], weights[:, 24])
    np.testing.assert_array_equal(packing(weights)[2, :, 15], weights[:, 39])


@pytest.mark.parametrize(
    ("reason", "build", "inputs"),
    [
        ("no reduction", OP.add, [numbers((4, 16)), numbers((4, 16))]),
        ("a sum, no product", lambda a: OP.sum(a, axis=1), [numbers((4, 16))]),
        ("two reductions", lambda a: OP.nn.softmax(a, axis=1), [numbers((4, 16))]),
        ("no spatial axis", OP.matmul, [numbers((16,)), numbers((16,))]),
        ("a convolution", lambda x: _convolution(x), [numbers((1, 5, 5, 4))]),
    ],
)
def test_declines(reason, build, inputs):
    """The rule answers ``None`` to what is not its own."""
    assert Matmul().apply(legalized_func(build, *inputs), frozenset(), HOST) is None, reason


def _convolution(x):
    w = constant(numbers((8, 3, 3, 4)))
    return OP.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI")
