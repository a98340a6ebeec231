"""Chains of operators that normalise become one operator each."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import Call

from tvm_rammer.transform.fuse_normalizations import FuseNormalizations
from tvm_rammer.transform.prepare import Prepare

OP = relax.op
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 4, 5)).astype("float32") + np.float32(300)
ROW = RNG.standard_normal(5).astype("float32")
CHANNEL = RNG.standard_normal(6).astype("float32")
TWO, ONE, EPSILON = (relax.const(value) for value in (2.0, 1.0, 1e-3))


def function_of(build, *arrays):
    """A Relax module of ``build`` on inputs like ``arrays``."""
    params = [
        relax.Var(f"x{k}", relax.TensorType(array.shape, str(array.dtype)))
        for k, array in enumerate(arrays)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod):
    """What the main function calls, in order."""
    names = []

    def visit(expression):
        if isinstance(expression, Call):
            names.append(expression.op.name)

    relax.analysis.post_order_visit(mod["main"], visit)
    return names


def run(mod, *arrays):
    device = tvm.cpu()
    executable = tvm.compile(relax.transform.LegalizeOps()(mod), "llvm")
    result = relax.VirtualMachine(executable, device)["main"](
        *(tvm.runtime.tensor(array, device) for array in arrays)
    )
    return result.numpy()


def normalised(x, axes, centred=True):
    x = x.astype("float64")
    difference = x - x.mean(axes, keepdims=True) if centred else x
    return difference / np.sqrt((difference**2).mean(axes, keepdims=True) + 1e-3)


def centre(x, axes):
    return OP.subtract(x, OP.mean(x, axes, True))


def over_root(numerator, spread, form):
    total = OP.add(EPSILON, spread) if form == "rsqrt" else OP.add(spread, EPSILON)
    if form == "divide":
        return OP.divide(numerator, OP.sqrt(total))
    if form == "rsqrt":
        return OP.multiply(OP.rsqrt(total), numerator)
    return OP.multiply(numerator, OP.divide(ONE, OP.sqrt(total)))


SQUARES = {
    "power": lambda d: OP.power(d, TWO),
    "multiply": lambda d: OP.multiply(d, d),
    "square": OP.square,
}


@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("form", ["divide", "rsqrt", "reciprocal"])
def test_layer_normalization(square, form):
    """ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add."""

    def build(x, scale, shift):
        difference = centre(x, [-1])
        spread = OP.mean(SQUARES[square](difference), [-1], True)
        return OP.add(shift, OP.multiply(over_root(difference, spread, form), scale))

    before = function_of(build, X, ROW, ROW)
    after = FuseNormalizations()(before)
    assert operators(after) == ["relax.call_tir"]
    tvm.ir.assert_structural_equal(FuseNormalizations()(after), after)
    np.testing.assert_allclose(
        run(after, X, ROW, ROW[::-1].copy()), normalised(X, (3,)) * ROW + ROW[::-1], atol=1e-3
    )


def test_a_difference_that_is_computed_twice():
    def build(x):
        spread = OP.mean(OP.power(centre(x, [1, 2]), TWO), [1, 2], True)
        return over_root(centre(x, [1, 2]), spread, "divide")

    after = FuseNormalizations()(function_of(build, X))
    assert operators(after) == ["relax.call_tir"]
    np.testing.assert_allclose(run(after, X), normalised(X, (1, 2)), atol=1e-3)


def test_instance_normalization_as_onnx_imports_it():
    """With ``variance``, and parameters for each channel."""

    def build(x, scale, shift):
        normal = over_root(centre(x, [2, 3]), OP.variance(x, [2, 3], True), "divide")
        scale, shift = (OP.reshape(p, (1, 6, 1, 1)) for p in (scale, shift))
        return OP.add(OP.multiply(normal, scale), shift)

    after = FuseNormalizations()(function_of(build, X, CHANNEL, CHANNEL))
    assert operators(after) == ["relax.reshape", "relax.reshape", "relax.call_tir"]
    scale = CHANNEL.reshape(6, 1, 1)
    got = run(after, X, CHANNEL, CHANNEL)
    np.testing.assert_allclose(got, normalised(X, (2, 3)) * scale + scale, atol=2e-3)


@pytest.mark.parametrize("form", ["divide", "rsqrt", "reciprocal"])
def test_rms_normalization(form):
    """No mean is subtracted."""

    def build(x, scale):
        return OP.multiply(scale, over_root(x, OP.mean(OP.power(x, TWO), [-1], True), form))

    after = FuseNormalizations()(function_of(build, X, ROW))
    assert operators(after) == ["relax.call_tir"]
    np.testing.assert_allclose(run(after, X, ROW), normalised(X, (3,), False) * ROW, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_and_instance_normalization(groups):
    """TVM's own would lose the digits of a spread of 1 around a mean of 300."""

    def group_norm(x, scale, shift):
        return OP.nn.group_norm(x, scale, shift, groups, 1, [2, 3], 1e-3)

    def instance_norm(x, scale, shift):
        return OP.nn.instance_norm(x, scale, shift, 1, [2, 3], 1e-3)

    scale = CHANNEL.reshape(6, 1, 1)
    want = normalised(X.reshape(2, groups, -1), (2,)).reshape(X.shape) * scale + scale
    for build in (group_norm, instance_norm) if groups == 6 else (group_norm,):
        after = FuseNormalizations()(function_of(build, X, CHANNEL, CHANNEL))
        assert operators(after) == ["relax.call_tir"]
        np.testing.assert_allclose(run(after, X, CHANNEL, CHANNEL), want, atol=2e-3)


def shift_of_full_shape(x, y):
    spread = OP.mean(OP.power(x, TWO), [-1], True)
    return OP.add(over_root(x, spread, "divide"), y)


def test_a_residual_is_no_shift():
    """What has a value of its own for every element is left to what adds it."""
    after = FuseNormalizations()(function_of(shift_of_full_shape, X, X))
    assert operators(after) == ["relax.call_tir", "relax.add"]


NO_NORMALIZATIONS = {
    "other axes": lambda x: over_root(
        centre(x, [-1]), OP.mean(OP.power(centre(x, [1]), TWO), [-1], True), "divide"
    ),
    "cubes": lambda x: over_root(x, OP.mean(OP.power(x, relax.const(3.0)), [-1], True), "divide"),
    "no mean square": lambda x: over_root(x, OP.sum(OP.power(x, TWO), [-1], True), "divide"),
    "another tensor": lambda x: over_root(
        OP.nn.relu(x), OP.mean(OP.power(x, TWO), [-1], True), "divide"
    ),
    "the root of the variance alone": lambda x: OP.divide(
        centre(x, [-1]), OP.sqrt(OP.variance(x, [-1], True))
    ),
}


@pytest.mark.parametrize("name", NO_NORMALIZATIONS)
def test_other_chains_stay(name):
    before = function_of(NO_NORMALIZATIONS[name], X)
    tvm.ir.assert_structural_equal(FuseNormalizations()(before), before)


def test_half_precision_stays():
    """Statistics of half precision are computed in single precision by TVM's own operators."""
    x, channel = X.astype("float16"), CHANNEL.astype("float16")
    before = function_of(
        lambda x, g, b: OP.nn.group_norm(x, g, b, 2, 1, [2, 3]), x, channel, channel
    )
    tvm.ir.assert_structural_equal(FuseNormalizations()(before), before)


def test_one_prim_func_of_a_prepared_model():
    """Nothing but the normalisation is left."""

    def build(x):
        spread = OP.mean(OP.power(centre(x, [-1]), TWO), [-1], True)
        scaled = OP.multiply(over_root(centre(x, [-1]), spread, "divide"), relax.const(ROW))
        return OP.add(scaled, relax.const(ROW))

    with tvm.target.Target("llvm"):
        mod = Prepare()(function_of(build, X))
    assert len([f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)]) == 1
