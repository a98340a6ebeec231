"""Chains of additions and multiplications with constants become one of each, or weights."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.fold_affine import FoldAffine

OP = relax.op
RNG = np.random.default_rng(0)
STEPS = {
    "add": (OP.add, np.add),
    "subtract": (OP.subtract, np.subtract),
    "multiply": (OP.multiply, np.multiply),
    "divide": (OP.divide, np.divide),
}


def constant(array, dtype="float32"):
    return relax.const(np.asarray(array, dtype), dtype)


def module(shape, body, dtype="float32"):
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            results = body(builder, x)
            results = results if isinstance(results, list) else [results]
            outputs = [builder.emit_output(result) for result in results]
        builder.emit_func_output(outputs)
    return builder.get()


def chain(*steps):
    """Each step (name, constant, whether it is the left operand)."""

    def body(builder, x):
        for name, value, left in steps:
            operands = (constant(value), x) if left else (x, constant(value))
            x = builder.emit(STEPS[name][0](*operands))
        return x

    return body


def operators(mod):
    block = mod["main"].body.blocks[0]
    names = [operator_name(binding.value).removeprefix("relax.") for binding in block.bindings]
    return [name for name in names if name]


def assert_stays(before):
    before = relax.transform.CanonicalizeBindings()(before)
    tvm.ir.assert_structural_equal(FoldAffine()(before), before)


def run(mod, x):
    return [result.numpy() for result in tvm_rammer.build(mod, num_veus=1).create()(x)]


steps = st.lists(
    st.tuples(
        st.sampled_from(list(STEPS)), st.sampled_from([(), (1,), (5,), (3, 1)]), st.booleans()
    ),
    min_size=2,
    max_size=6,
).map(lambda drawn: [(n, shape, left and n != "divide") for n, shape, left in drawn])


@settings(max_examples=6)
@given(steps=steps, seed=st.integers(0, 99))
def test_a_chain_computes_the_same(steps, seed):
    """Scalars and vectors, on either side, in any order."""
    rng = np.random.default_rng(seed)
    values = [rng.uniform(0.5, 2, shape) * rng.choice([-1, 1]) for _, shape, _ in steps]
    drawn = [(n, value, left) for (n, _, left), value in zip(steps, values, strict=True)]
    folded = FoldAffine()(module((4, 3, 5), chain(*drawn)))
    assert set(operators(folded)) <= {"multiply", "add"}
    assert len(operators(folded)) <= 2
    x = rng.standard_normal((4, 3, 5)).astype("float32")
    want = x.astype("float64")
    for name, value, left in drawn:
        value = value.astype("float32").astype("float64")
        want = STEPS[name][1](*((value, want) if left else (want, value)))
    (got,) = run(folded, x)
    assert_close(got, want)


def test_a_batch_norm_is_a_multiplication_and_an_addition():
    """Four channels of mean, deviation, scale and shift."""
    mean, deviation, scale, shift = RNG.uniform(0.5, 2, (4, 4))
    before = module(
        (2, 3, 4),
        chain(
            ("subtract", mean, False),
            ("divide", deviation, False),
            ("multiply", scale, False),
            ("add", shift, False),
        ),
    )
    assert operators(FoldAffine()(before)) == ["multiply", "add"]


def convolution(weights, then, **options):
    def body(builder, x):
        y = builder.emit(OP.nn.conv2d(x, constant(weights), **options))
        return then(builder, y)

    return body


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_factor_moves_into_the_weights_of_a_convolution(groups, channels_last):
    """What remains is the shift."""
    per_channel = (6,) if channels_last else (6, 1, 1)
    shift, scale, more = RNG.uniform(0.5, 2, (3, *per_channel))
    then = chain(("add", shift, False), ("multiply", scale, False), ("add", more, False))
    if channels_last:
        shape, weights = (1, 5, 5, 4), RNG.standard_normal((6, 3, 3, 4 // groups))
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    else:
        shape, weights = (1, 4, 5, 5), RNG.standard_normal((6, 4 // groups, 3, 3))
        layouts = {}
    before = module(shape, convolution(weights, then, groups=groups, padding=1, **layouts))
    after = FoldAffine()(before)
    assert operators(after) == ["nn.conv2d", "add"]
    x = RNG.standard_normal(shape).astype("float32")
    (plain,) = run(
        module(shape, convolution(weights, lambda _, y: y, groups=groups, padding=1, **layouts)), x
    )
    assert_close(run(after, x)[0], (plain + shift) * scale + more)


def test_a_factor_moves_into_the_weights_of_a_product():
    weights, scale = RNG.standard_normal((5, 6)), RNG.uniform(0.5, 2, (6,))

    def body(builder, x):
        return OP.divide(builder.emit(OP.matmul(x, constant(weights))), constant(scale))

    after = FoldAffine()(module((3, 5), body))
    assert operators(after) == ["matmul"]
    x = RNG.standard_normal((3, 5)).astype("float32")
    assert_close(run(after, x)[0], x @ weights / scale)


def test_a_factor_that_differs_between_pixels_stays():
    """It is no factor of an output channel."""
    scale = RNG.uniform(0.5, 2, (1, 1, 5, 5))
    weights = RNG.standard_normal((6, 4, 1, 1))
    assert_stays(module((1, 4, 5, 5), convolution(weights, chain(("multiply", scale, False)))))


def test_a_result_with_another_use_stays():
    """The convolution and the first sum are results as well."""

    def body(builder, x):
        y = builder.emit(OP.nn.conv2d(x, constant(np.ones((2, 2, 1, 1)))))
        total = builder.emit(OP.add(y, constant(1.0)))
        return [OP.multiply(total, constant(2.0)), OP.nn.relu(y), OP.nn.relu(total)]

    assert_stays(module((1, 2, 3, 3), body))


def test_a_factor_of_a_part_of_a_split_stays():
    def body(builder, x):
        parts = builder.emit(OP.split(x, 2, axis=1))
        part = builder.emit(relax.TupleGetItem(parts, 0))
        return OP.multiply(part, constant(2.0))

    assert_stays(module((2, 4), body))


@pytest.mark.parametrize(
    "steps",
    [
        [("add", 1, False), ("multiply", np.inf, False)],
        [("add", np.nan, False), ("multiply", 2, False)],
        [("add", 1, False), ("divide", 0, False)],
        [("multiply", 1e30, False), ("multiply", 1e30, False)],
        [("multiply", 1e-30, False), ("multiply", 1e-30, False)],
        [("add", 1, False), ("divide", 2, True)],
        [("add", 1, False)],
        [("add", 1, False), ("multiply", np.ones((7, 2, 3)), False)],
        [("subtract", 1e6, False), ("multiply", 3.3, False)],
        [("multiply", 2, False), ("add", 500, False), ("divide", [1, 0.5, 2], False)],
    ],
    ids=[
        *("inf", "nan", "by zero", "overflow", "vanish", "inverse", "one step", "stretched"),
        *("far from zero", "far in one column"),
    ],
)
def test_what_stays(steps):
    assert_stays(module((2, 3), chain(*steps)))


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_other_dtypes_stay(dtype):
    """Half precision rounds after every step, integers wrap around."""

    def body(builder, x):
        y = builder.emit(OP.multiply(x, constant(2, dtype)))
        return OP.multiply(y, constant(3, dtype))

    assert_stays(module((4,), body, dtype))


def test_weights_that_are_not_finite_stay():
    weights = np.full((2, 2, 1, 1), np.nan)
    assert_stays(module((1, 2, 3, 3), convolution(weights, chain(("multiply", 2, False)))))
