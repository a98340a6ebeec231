"""Operators on constants become constants, with the values that TVM itself computes."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_ffi import structural_walk

from tvm_rammer.transform.fold_constants import FoldConstants

Operator = Callable[..., relax.Expr]

SAME_SHAPES = ("add", "subtract", "multiply", "maximum", "minimum")
MOVING: dict[str, Operator] = {
    "reshape": lambda x: op.reshape(x, (6, 4)),
    "reshape with -1": lambda x: op.reshape(x, (4, -1)),
    "squeeze": lambda x: op.squeeze(op.expand_dims(x, 0)),
    "expand_dims": lambda x: op.expand_dims(x, [0, 2]),
    "flatten": op.flatten,
    "permute_dims": lambda x: op.permute_dims(x, [2, 0, 1]),
    "permute_dims without axes": op.permute_dims,
    "broadcast_to": lambda x: op.broadcast_to(x, (5, 2, 3, 4)),
    "concat": lambda x: op.concat([x, x], axis=1),
    "split": lambda x: relax.TupleGetItem(op.split(x, 2, axis=2), 1),
    "split at places": lambda x: relax.TupleGetItem(op.split(x, [1, 3], axis=-1), 1),
    "take": lambda x: op.take(x, relax.const([[2, 0]]), axis=1),
    "take of all": lambda x: op.take(op.flatten(x), relax.const([5, 0])),
    "take from the end": lambda x: op.take(x, relax.const(-1), axis=-1, mode="wrap"),
    "strided_slice": lambda x: op.strided_slice(x, [1, -1], [0, 1], [2, 9]),
    "strided_slice by steps": lambda x: op.strided_slice(x, [2], [0], [4], [2]),
    "strided_slice backwards": lambda x: op.strided_slice(x, [2], [-1], [-4], [-2]),
    "strided_slice from the end": lambda x: op.strided_slice(x, [0], [-1], [2**63 - 1]),
    "astype": lambda x: op.astype(x, "float64"),
    "concat on the last axis": lambda x: op.concat([x, x], axis=-1),
}


def _scale_and_shift(shape: tuple[int, ...]) -> list[GenericConst]:
    return [
        relax.const(np.linspace(low, 2, 12, dtype="float32")[: np.prod(shape)].reshape(shape))
        for low in (-1, 0.5)
    ]


FLOATING: dict[str, Operator] = {
    **{
        name: getattr(op, name)
        for name in ("sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "sin", "cos")
    },
    **{name: getattr(op, name) for name in ("floor", "ceil", "trunc", "sign")},
    "power": lambda x: op.power(op.abs(x), x),
    "mod": lambda x: op.mod(x, op.permute_dims(op.permute_dims(op.negative(op.abs(x))))),
    "floor_mod": lambda x: op.floor_mod(x, relax.const(np.full((3, 1), -0.75, "float32"))),
    "sum": lambda x: op.sum(x, [0, -1]),
    "sum of all": lambda x: op.sum(x, keepdims=True),
    "mean": lambda x: op.mean(x, 1, keepdims=True),
    "cumsum": lambda x: op.cumsum(x, 1),
    "cumsum of all": op.cumsum,
    "softmax": lambda x: op.nn.softmax(x, 1),
    "layer_norm": lambda x: op.nn.layer_norm(x, *_scale_and_shift((3, 4)), [-2, -1]),
    "layer_norm of an axis": lambda x: op.nn.layer_norm(x, *_scale_and_shift((4,)), -1, 1e-3),
    "divide": lambda x: op.divide(x, x),
    "round": lambda x: op.round(op.multiply(x, relax.const(7.5))),
    "matmul": lambda x: op.matmul(x, op.permute_dims(x, [0, 2, 1])),
}


def values(dtype: str, seed: int = 0) -> np.ndarray:
    """Both signs where there are two, the extremes of integers among them; never zero."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.uniform(-2, 2, (2, 3, 4)).astype(dtype)
    limits = np.iinfo(dtype)
    drawn = rng.integers(1, 50, (2, 3, 4)).astype(dtype)
    drawn[0, 0, :2] = limits.min if limits.min else 1, limits.max
    return drawn


def module(operator: Operator, *arrays: np.ndarray) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            constants = [relax.const(array, array.dtype.name) for array in arrays]
            result = builder.emit_output(builder.normalize(operator(*constants)))
        builder.emit_func_output(result)
    return builder.get()


def folded(mod: tvm.IRModule) -> np.ndarray | None:
    """The constant that ``main`` became, if it did."""
    body = FoldConstants()(mod)["main"].body
    bindings = [b for block in body.blocks for b in block.bindings]
    result = bindings[-1].value if bindings else body.body
    return result.value.numpy() if isinstance(result, GenericConst) else None


def computed(mod: tvm.IRModule) -> np.ndarray:
    """What stock TVM computes."""
    executable = relax.build(mod, "llvm")
    return relax.VirtualMachine(executable, tvm.cpu())["main"]().numpy()


def assert_same(got: np.ndarray | None, want: np.ndarray, tolerance: float = 0.0) -> None:
    assert got is not None, "nothing was folded"
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int8", "uint8"])
@pytest.mark.parametrize("name", SAME_SHAPES)
def test_arithmetic_is_exact_for_every_dtype(name, dtype):
    mod = module(getattr(op, name), values(dtype), values(dtype, seed=1))
    assert_same(folded(mod), computed(mod))


@pytest.mark.parametrize("name", ["logical_and", "logical_or"])
def test_truths_are_exact(name):
    left, right = values("float32") > 0, values("float32", seed=1) > 0
    assert_same(folded(mod := module(getattr(op, name), left, right)), computed(mod))
    assert_same(folded(mod := module(op.logical_not, left)), computed(mod))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums_of_integers_are_exact(dtype):
    for of in (lambda x: op.cumsum(x, 2), lambda x: op.sum(x, [0, 2])):
        assert_same(folded(mod := module(of, values(dtype))), computed(mod))


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.array([-128.0, -2.5, -0.5, 0.0, 1.9, 126.5], "float32"), "int8"),
        (np.array([0.0, 0.5, 254.0], "float32"), "uint8"),
        (np.array([-2.5, 1e9, 3.0], "float32"), "int64"),
        (np.array([0, 2, -1], "int8"), "bool"),
        (np.array([0, 2, -1, 300], "int64"), "uint8"),
        (np.array([0, 128, 255], "uint8"), "int8"),
        (np.array([False, True]), "uint8"),
        (np.array([0.0, 0.25, np.nan], "float32"), "bool"),
    ],
)
def test_conversions_are_exact(array, dtype):
    assert_same(folded(mod := module(lambda x: op.astype(x, dtype), array)), computed(mod))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("of", ["float32", "int8", "int32"])
def test_conversions_to_16_bits_are_exact(of, dtype):
    """Ties, subnormal numbers, and what is too large."""
    odd = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 65519.0, 65520.0, 2.0**-25, -(2.0**-24)]
    array = np.array([*odd, np.inf], "float32") if of == "float32" else values(of)
    mod = module(lambda x: op.astype(op.astype(x, dtype), "float32"), array)
    assert_same(folded(mod), computed(mod))


@pytest.mark.parametrize("name", ["multiply", "subtract", "divide"])
def test_arithmetic_of_bfloat16_is_rounded_at_each_step(name):
    arrays = values("float32"), values("float32", seed=1)

    def of_short(*arrays):
        short = (op.astype(array, "bfloat16") for array in arrays)
        return op.astype(getattr(op, name)(*short), "float32")

    assert_same(folded(mod := module(of_short, *arrays)), computed(mod))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize(
    "name", ["bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide", "floor_mod"]
)
def test_operators_on_bits_and_divisions_of_integers_are_exact(name, dtype):
    mod = module(getattr(op, name), values(dtype), values(dtype, seed=1))
    assert_same(folded(mod), computed(mod))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("name", ["left_shift", "right_shift"])
def test_shifts_are_exact(name, dtype):
    bits = np.arange(24, dtype=dtype).reshape(2, 3, 4) % 8
    mod = module(getattr(op, name), values(dtype), bits)
    assert_same(folded(mod), computed(mod))
    assert folded(module(getattr(op, name), values(dtype), bits + np.dtype(dtype).type(60))) is None


def test_a_division_of_integers_by_zero_stays():
    array = np.array([1, 0], "int32")
    assert folded(module(op.floor_divide, array, array)) is None
    assert folded(module(op.floor_mod, array, array)) is None


def test_of_a_number_beyond_bytes_the_lower_bits_are_left():
    """Stock TVM fails to convert it."""
    got = folded(module(lambda x: op.astype(x, "uint8"), np.array(-1, "int64")))
    assert got is not None and got.dtype == np.uint8 and got == 255


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_extremes_of_axes_are_exact(name, dtype):
    array = values("uint8").astype(dtype)
    for axis, keepdims in ((None, True), ([0, 2], False)):
        mod = module(lambda x, a=axis, k=keepdims: getattr(op, name)(x, a, k), array)
        assert_same(folded(mod), computed(mod))


@pytest.mark.parametrize("name", ["equal", "less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_comparisons_are_exact(name, dtype):
    left, right = values(dtype), values(dtype, seed=1)
    right[0] = left[0]
    if dtype == "float32":
        left[0, 0, 0] = right[1, 0, 0] = np.nan
    mod = module(getattr(op, name), left, right)
    assert_same(folded(mod), computed(mod))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("reduction", ["update", "add", "mul"])
def test_scattering_is_exact(reduction, dtype):
    """Several may meet in a place, but of replacements."""
    places = np.array([[1, 2], [0, 1], [1, 0] if reduction == "update" else [1, 2]])
    data, updates = values(dtype), values(dtype, 1)[:1].repeat(3, 0)[:, 0]

    def scatter(data, places, updates):
        return op.scatter_nd(data, places, updates, reduction)

    assert_same(folded(mod := module(scatter, data, places, updates)), computed(mod))
    assert folded(module(scatter, data, places - 1, updates)) is None
    assert folded(module(scatter, data, places + 1, updates)) is None


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(lambda x: op.max(x, 1), id="a NaN"),
        pytest.param(op.sign, id="the sign of NaN"),
        pytest.param(lambda x: op.astype(x, "int32"), id="NaN as an integer"),
        pytest.param(lambda x: op.astype(x, "bfloat16"), id="NaN in 16 bits"),
        pytest.param(lambda x: op.cumsum(x, 1, exclusive=True), id="sums of those before"),
        pytest.param(lambda x: op.take(x, relax.const([1]), 0, mode="nan"), id="NaN outside"),
    ],
)
def test_what_numpy_computes_otherwise_stays(operator):
    assert folded(module(operator, np.array([[1, np.nan], [3, 4]], "float32"))) is None


@pytest.mark.parametrize("operator", [lambda x: op.max(x, 0), lambda x: op.nn.softmax(x, 0)])
def test_extremes_of_nothing_stay(operator):
    assert folded(module(operator, np.zeros((0, 3), "float32"))) is None


def test_shapes_that_are_known_are_constants():
    x = relax.Var("x", relax.TensorType((4, 7), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            sizes = builder.emit(op.shape_to_tensor(builder.emit(op.shape_of(x))))
            result = builder.emit_output(op.take(sizes, relax.const(1), axis=0))
        builder.emit_func_output(result)
    got = folded(builder.get())
    assert got is not None and got == 7 and got.dtype == np.int64


@pytest.mark.parametrize("name", ["negative", "abs"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
def test_signs_are_exact(name, dtype):
    mod = module(getattr(op, name), values(dtype))
    assert_same(folded(mod), computed(mod))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_treat_nan_and_signed_zeros_as_tvm_does(name):
    left = np.array([np.nan, 1, -0.0, 0.0, 2], "float32")
    right = np.array([1, np.nan, 0.0, -0.0, 3], "float32")
    mod = module(getattr(op, name), left, right)
    got, want = folded(mod), computed(mod)
    assert_same(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("name", MOVING)
def test_moving_elements_is_exact_for_every_dtype(name, dtype):
    array = values("int8").astype(dtype)
    mod = module(MOVING[name], array)
    assert_same(folded(mod), computed(mod))


@pytest.mark.parametrize("name", FLOATING)
def test_floating_point_operators_agree_to_rounding(name):
    mod = module(FLOATING[name], np.abs(values("float32")))
    assert_same(folded(mod), computed(mod), 1e-6)


def test_a_product_that_is_wider_than_its_factors_is_summed_in_the_wider_dtype():
    rng = np.random.default_rng(0)
    factors = (rng.random((4, 300)).astype("float16"), rng.random((300, 4)).astype("float16"))
    mod = module(lambda a, b: op.matmul(a, b, out_dtype="float32"), *factors)
    assert_same(folded(mod), computed(mod), 1e-4)


SCALES = {"one": (1,), "a number": (), "for each": (3,)}


@pytest.mark.parametrize("shape", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
def test_changes_of_scale_are_exact(dtype, shape):
    """Ties, both ends, and what is beyond them; axes are counted from either end."""
    rng = np.random.default_rng(0)
    point = rng.integers(0, 100, shape).astype(dtype)
    if dtype != "int32":
        scale = np.full(shape, 0.5, "float32")
        limits = np.iinfo(dtype)
        ends = [limits.min, limits.min - 7, limits.max, limits.max + 9, np.inf, -np.inf]
        reals = np.array([*ends, *np.arange(-24, 24) / 4], "float32").reshape(2, 3, 9)
        to = module(lambda x, *of: op.quantize(x, *of, -2, dtype), reals, scale, point)
        assert_same(folded(to), computed(to))
    scale = rng.uniform(0.1, 2, shape).astype("float32")
    back = module(lambda x, *of: op.dequantize(x, *of, 1), values(dtype), scale, point)
    assert_same(folded(back), computed(back))


def test_other_changes_of_scale_stay():
    arrays = values("int8"), np.array(0.5, "float16"), np.array(3, "int8")
    assert folded(module(lambda x, *of: op.dequantize(x, *of, 1, "float16"), *arrays)) is None


@pytest.mark.parametrize("name", ["divide", "matmul"])
def test_integer_division_and_products_stay(name):
    array = np.array([[7, -7], [-8, 3]], "int32")
    assert folded(module(getattr(op, name), array, np.full((2, 2), 2, "int32"))) is None


def test_an_operator_that_is_not_in_the_table_stays():
    assert folded(module(op.nn.gelu, values("float32"))) is None


def test_constants_are_folded_through_each_other():
    mod = module(
        lambda a, b: op.exp(op.add(op.reshape(a, (24,)), b)),
        values("float32"),
        np.ones(1, "float32"),
    )
    assert_same(folded(mod), computed(mod), 1e-6)


def test_what_depends_on_an_input_stays():
    one, two = (relax.const(np.full(3, value, "float32")) for value in (1, 2))
    three = relax.const(np.full(3, 3, "float32"))

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                weight = R.add(one, two)
                y = R.multiply(x, weight)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                y = R.multiply(x, three)
                R.output(y)
            return y

    after = FoldConstants()(Before)
    tvm.ir.assert_structural_equal(after, Expected)
    tvm.ir.assert_structural_equal(FoldConstants()(after), after)


def test_division_by_zero_is_infinite_and_says_nothing(recwarn):
    mod = module(op.divide, np.ones(3, "float32"), np.zeros(3, "float32"))
    np.testing.assert_array_equal(folded(mod), np.full(3, np.inf))
    assert not recwarn.list


def test_steps_in_between_are_forgotten():
    """A model may unpack its weights in many steps."""
    array = values("float32", 1).repeat(1 << 14)

    def steps(x):
        return op.add(op.add(op.negative(op.abs(op.negative(op.abs(x)))), x), x)

    mod = relax.transform.Normalize()(module(steps, array))
    tracemalloc.start()
    try:
        found = folded(mod)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, 2 * array - np.abs(array))
    assert peak < 4.5 * array.nbytes


def test_what_several_functions_turn_stays_one():
    weights = relax.const(np.arange(12, dtype="float32").reshape(3, 4))
    builder = relax.BlockBuilder()
    for name, axes in (("f", [1, 0]), ("g", None), ("h", [0, 1])):
        x = relax.Var("x", relax.TensorType((2, 4), "float32"))
        with builder.function(name, [x]):
            with builder.dataflow():
                turned = builder.emit(op.permute_dims(weights, axes))
                out = builder.emit_output((x, turned))
            builder.emit_func_output(out)
    made = {}
    for symbol, func in FoldConstants()(builder.get()).functions.items():
        structural_walk(
            func, (GenericConst, lambda c, k=symbol.name_hint: made.update({k: c.value}))
        )
    assert made["f"].same_as(made["g"])
    np.testing.assert_array_equal(made["f"].numpy(), weights.value.numpy().T)
    np.testing.assert_array_equal(made["h"].numpy(), weights.value.numpy())
