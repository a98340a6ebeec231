"""Sums of small integers are made in float32 where it has every one of them, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import calls, run
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.integer_products import IntegerProducts
from tvm_rammer.transform.sum_integers_in_floats import SumIntegersInFloats

OP = relax.op
#: float32 has 2**24, but not the integer behind it.
EXACT = 2**24


def module(
    operator: Callable[..., Any], *inputs: tuple[tuple[int, ...], str], count: int = 1
) -> tvm.IRModule:
    """A function that hands its inputs to an operator, which makes one tensor or a few."""
    params = [relax.Var(f"x{k}", relax.TensorType(*each)) for k, each in enumerate(inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = operator(*params)
            results = [builder.emit_output(each) for each in (made if count > 1 else [made])]
        builder.emit_func_output(results if count > 1 else results[0])
    return relax.transform.Normalize()(builder.get())


def wide(x: Any, zero_point: Any = None) -> Any:
    """Integers of 32 bits, as importers make them."""
    widened = OP.astype(x, "int32")
    return widened if zero_point is None else OP.subtract(widened, zero_point)


def product(weights: np.ndarray, zero_point: int | None = None) -> Callable[[Any], Any]:
    point = None if zero_point is None else relax.const(zero_point, "int32")
    return lambda x: OP.matmul(wide(x, point), relax.const(weights.astype("int32")))


def built(mod: tvm.IRModule, *data: np.ndarray) -> tuple[np.ndarray, set[str]]:
    """What a build computes, and which templates its kernels are of."""
    library = tvm_rammer.build(mod, policy="sequential")
    instance = library.create()
    for number, array in enumerate(data):
        instance.set_input(f"x{number}", array)
    instance.run()
    programs = library.programs.values()
    origins = {kernel.origin for program in programs for kernel in program.kernels}
    return instance.get_output(0).numpy(), origins


def sums(mod: tvm.IRModule) -> list[str]:
    """The types that products and convolutions have after the pass."""
    names = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d")
    after = SumIntegersInFloats()(mod)
    return [str(call.ty.dtype) for call in calls(after["main"]) if operator_name(call) in names]


@pytest.mark.parametrize(
    ("dtype", "zero_point", "largest"),
    [
        ("uint8", None, 255),
        ("int8", None, 128),
        ("uint8", 128, 128),
        ("uint8", 3, 252),
        ("int8", -128, 255),
        ("uint16", None, 65535),
    ],
)
def test_what_no_sum_exceeds_decides(dtype, zero_point, largest):
    """Magnitudes of a column times the largest magnitude of the data, zero points taken away."""
    weights = np.ones((-(-EXACT // largest), 2))
    weights[::2] = -1
    data = ((3, len(weights)), dtype)
    assert sums(module(product(weights, zero_point), data)) == ["int32"]
    weights[0, 0], weights[:, 1] = 0, 0
    assert sums(module(product(weights, zero_point), data)) == ["float32"]


@pytest.mark.parametrize(
    ("rows", "summed", "dtype", "zero_point", "types"),
    [
        (5, 6, "uint8", None, {"int16"}),
        (5, 6, "uint8", 255, {"int16"}),
        (5, 6, "int16", None, {"int16"}),
        (4, 6, "uint8", None, {"float32"}),
        (5, 7, "uint8", None, {"float32"}),
        (5, 6, "uint16", None, {"float32"}),
        (5, 6, "int16", 1, {"float32"}),
    ],
)
def test_many_even_sums_of_16_bits_are_taken_in_pairs(rows, summed, dtype, zero_point, types):
    mod = module(product(np.ones((summed, 8)), zero_point), ((rows, summed), dtype))
    after = calls(SumIntegersInFloats(IntegerProducts(4, 2))(mod)["main"])
    (found,) = (call for call in after if operator_name(call) == "relax.matmul")
    assert {str(operand.ty.dtype) for operand in found.args} == types


def test_neighbours_add_up_to_more_than_float32_holds():
    weights = np.full((70_000, 8), 127)
    mod = module(product(weights), ((5, len(weights)), "uint8"))
    data = np.full((5, len(weights)), 255, "uint8")
    assert 2**31 < 70_000 * 127 * 255 < 2**32
    got, _ = built(mod, data)
    assert (got.view("uint32") == 70_000 * 127 * 255).all()


def test_integers_of_unknown_size_stay():
    weights = relax.const(np.ones((4, 2), "int32"))
    assert sums(module(lambda x: OP.matmul(x, weights), ((3, 4), "int32"))) == ["int32"]
    unknown = module(
        lambda x, point: OP.matmul(wide(x, point), weights), ((3, 4), "uint8"), ((), "int32")
    )
    assert sums(unknown) == ["int32"]


def test_small_integers_behind_many_operators():
    """A sum of a sum of a sum is asked about once, and a long way not at all."""

    def doubled(times):
        def operator(x):
            data = wide(x)
            for _ in range(times):
                data = OP.add(data, data)
            return OP.matmul(data, relax.const(np.ones((4, 2), "int32")))

        return module(operator, ((3, 4), "uint8"))

    assert sums(doubled(14)) == ["float32"]
    assert sums(doubled(15)) == ["int32"]
    assert sums(doubled(500)) == ["int32"]


def test_what_was_a_float_is_not_known():
    weights = relax.const(np.ones((4, 2), "int32"))
    numbers = relax.const(np.array([np.nan, 0.5, 1, 2], "float32"))

    def operator(x):
        return OP.matmul(wide(OP.add(OP.astype(x, "float32"), numbers)), weights)

    assert sums(module(operator, ((3, 4), "uint8"))) == ["int32"]


def test_a_zero_point_of_the_run_and_moved_data():
    """As dynamically quantised models have them."""

    def operator(x, point):
        data = OP.reshape(wide(x, wide(point)), (2, 4))
        return OP.matmul(data, relax.const(np.full((4, 2), 127, "int32")))

    assert sums(module(operator, ((8,), "uint8"), ((), "uint8"))) == ["float32"]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("padding", [0, 1])
def test_zero_points_of_the_run_are_taken_from_sums_of_fours(dtype, padding):
    """Where a window meets zeros, which are none of the point, in pairs."""
    weights = np.random.default_rng(0).integers(-128, 128, (16, 3, 3, 6)).astype("int32")
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "padding": padding}

    def operator(x, point):
        return OP.nn.conv2d(wide(x, wide(point)), relax.const(weights), strides=2, **layouts)

    before = module(operator, ((1, 9, 9, 6), dtype), ((), dtype))
    after = SumIntegersInFloats(IntegerProducts(4, 4))(before)
    found = next(call for call in calls(after["main"]) if operator_name(call) == "relax.nn.conv2d")
    factors = [str(operand.ty.dtype) for operand in found.args]
    assert factors == (["int16", "int16"] if padding else ["uint8", "int8"])
    limits = np.iinfo(dtype)
    data = np.random.default_rng(1).integers(limits.min, limits.max + 1, (1, 9, 9, 6))
    given_data = [data.astype(dtype), np.array(limits.max - 3, dtype)]
    (wanted,), (got,) = (run(relax.build(mod, "llvm"), given_data) for mod in (before, after))
    np.testing.assert_array_equal(got, wanted)


def test_weights_that_are_no_bytes_are_taken_in_pairs():
    weights = np.full((8, 8), 200)
    mod = module(product(weights, 3), ((9, 8), "uint8"))
    after = SumIntegersInFloats(IntegerProducts(4, 4))(mod)
    (found,) = (c for c in calls(after["main"]) if operator_name(c) == "relax.matmul")
    assert {str(operand.ty.dtype) for operand in found.args} == {"int16"}


def test_two_factors_of_the_run():
    def operator(a, b):
        return OP.matmul(wide(a), OP.permute_dims(wide(b), [0, 2, 1]))

    def of(size):
        return module(operator, ((2, 3, size), "uint8"), ((2, 5, size), "uint8"))

    assert sums(of(EXACT // 255**2)) == ["float32"]
    assert sums(of(EXACT // 255**2 + 1)) == ["int32"]


def test_what_several_read_is_converted_once():
    """Else what makes it could not make floats at once."""
    weights = [relax.const(np.full((4, n), n, "int32")) for n in (2, 3)]

    def operator(x):
        data = wide(x)
        return [OP.matmul(data, each) for each in weights]

    before = module(operator, ((3, 4), "uint8"), count=2)
    names = [operator_name(call) for call in calls(SumIntegersInFloats()(before)["main"])]
    # To int32, to float32, and both results back.
    assert names.count("relax.astype") == 4


def test_other_types_and_what_is_done_stay():
    floats = module(
        lambda x: OP.matmul(x, relax.const(np.ones((4, 2), "float32"))), ((3, 4), "float32")
    )
    assert SumIntegersInFloats()(floats).same_as(floats)
    once = SumIntegersInFloats()(module(product(np.ones((4, 2))), ((3, 4), "uint8")))
    assert SumIntegersInFloats()(once).same_as(once)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "channels first": ((1, 4, 6, 7), (5, 4, 3, 3), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
    "channels last": (
        (1, 6, 7, 4),
        (5, 3, 3, 4),
        {"data_layout": "NHWC", "kernel_layout": "OHWI", "dilation": (1, 2)},
    ),
    "groups": ((2, 6, 5, 5), (4, 3, 2, 2), {"groups": 2}),
    "signals": ((1, 3, 9), (2, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_compute_the_same(name):
    data, kernel, options = CONVOLUTIONS[name]
    rng = np.random.default_rng(0)
    weights = relax.const(rng.integers(-128, 128, kernel).astype("int32"))
    convolve = OP.nn.conv1d if len(data) == 3 else OP.nn.conv2d
    before = module(lambda x: convolve(wide(x), weights, **options), (data, "uint8"))
    after = SumIntegersInFloats()(before)
    assert sums(before) == ["float32"]
    given_data = [rng.integers(0, 256, data).astype("uint8")]
    (wanted,), (got,) = (run(relax.build(mod, "llvm"), given_data) for mod in (before, after))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, wanted)


def test_the_outputs_of_a_kernel_are_where_its_layout_says():
    """Not its largest axis, nor the first."""
    kernel = np.ones((3, 3, 8, 2), "int32")
    kernel[..., 1] = EXACT // 255 // 72

    def operator(x):
        weights = relax.const(kernel)
        return OP.nn.conv2d(wide(x), weights, data_layout="NHWC", kernel_layout="HWIO")

    assert sums(module(operator, ((1, 6, 6, 8), "uint8"))) == ["float32"]
    kernel[..., 1] += 1
    assert sums(module(operator, ((1, 6, 6, 8), "uint8"))) == ["int32"]


def test_a_built_convolution_is_exact_and_no_winograd():
    """Of taps for which floats would take Winograd's algorithm, with sums near the limit."""
    rng = np.random.default_rng(0)
    weights = rng.integers(100, 114, (64, 64, 3, 3)).astype("int32")

    def operator(x):
        return OP.nn.conv2d(wide(x), relax.const(weights), padding=1)

    mod = module(operator, ((1, 64, 14, 14), "uint8"))
    assert sums(mod) == ["float32"]
    data = rng.integers(250, 256, (1, 64, 14, 14)).astype("uint8")
    got, origins = built(mod, data)
    assert "convolution" in origins and "winograd" not in origins
    (wanted,) = run(relax.build(mod, "llvm"), [data])
    assert wanted.max() > 0.9 * EXACT
    np.testing.assert_array_equal(got, wanted)


def test_floats_that_become_integers_behind_a_bias_may_use_winograd():
    """What is cast is a sum and a bias then, which is as exact as any float."""
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, (64, 64, 3, 3)).astype("float32"))
    bias = relax.const(np.full((1, 64, 1, 1), 0.5, "float32"))

    def operator(x):
        return OP.astype(OP.add(OP.nn.conv2d(x, weights, padding=1), bias), "int32")

    mod = module(operator, ((1, 64, 28, 28), "float32"))
    data = rng.uniform(-1, 1, (1, 64, 28, 28)).astype("float32")
    got, origins = built(mod, data)
    assert "winograd" in origins
    (wanted,) = run(relax.build(mod, "llvm"), [data])
    np.testing.assert_allclose(got, wanted, atol=1)


@settings(deadline=None, max_examples=12)
@given(
    st.integers(0, 999),
    st.tuples(st.integers(5, 9), st.integers(1, 70), st.integers(1, 40)),
    st.sampled_from(["uint8", "int8"]),
    st.integers(-128, 255),
)
def test_whatever_the_integers_are_a_built_product_is_exact(seed, sizes, dtype, point):
    rng = np.random.default_rng(seed)
    rows, inner, columns = sizes
    limits = np.iinfo(dtype)
    data = rng.integers(limits.min, limits.max + 1, (rows, inner)).astype(dtype)
    weights = rng.integers(-128, 128, (inner, columns))
    mod = module(product(weights, point), ((rows, inner), dtype))
    got, _ = built(mod, data)
    np.testing.assert_array_equal(got, (data.astype("int64") - point) @ weights)
