"""Operators that importers leave behind become plainer ones."""

from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close
from small_graphs import calls
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.relax_util import operator_name, static_shape
from tvm_rammer.transform.simplify_operators import SimplifyOperators

ROW = relax.const(np.arange(3, dtype="float32"))
RAISED_ROW = relax.const(np.arange(3, dtype="float32").reshape(1, 3))


def assert_becomes(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = SimplifyOperators()(before)
    tvm.ir.assert_structural_equal(after, expected)
    tvm.ir.assert_structural_equal(SimplifyOperators()(after), after)


def batch_norm(statistics, **options):
    """A module of the batch norm of two rows by constants."""
    constants = [relax.const(values) for values in statistics]
    x = relax.Var("x", relax.TensorType((2, 3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            normalized = builder.emit(relax.op.nn.batch_norm(x, *constants, **options))
            y = builder.emit_output(relax.TupleGetItem(normalized, 0))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_a_batch_norm_by_constants_is_a_multiplication_and_an_addition(axis, scale, center):
    rng = np.random.default_rng(0)
    statistics = rng.uniform(0.5, 2, (4, (2, 3, 4)[axis])).astype("float32")
    module = batch_norm(
        statistics, axis=axis, epsilon=0.1, scale=scale, center=center, training=False
    )
    after = SimplifyOperators()(module)
    first, second = calls(after["main"])
    assert [operator_name(first), operator_name(second)] == ["relax.multiply", "relax.add"]
    gamma, beta, mean, variance = statistics.astype("float64")
    factor = (gamma if scale else 1) / np.sqrt(variance + 0.1)
    shift = (beta if center else 0) - mean * factor
    for call, expected in ((first, factor), (second, shift)):
        shape = (-1, 1) if axis == 1 else (-1,)
        expected = np.broadcast_to(expected.reshape(shape), (3, 4))
        values = np.broadcast_to(call.args[1].value.numpy(), (1, 3, 4))[0]
        assert_close(values, expected, 1e-6)


@pytest.mark.parametrize(("variance", "training"), [(-1, False), (1, True)])
def test_other_batch_norms_stay(variance, training):
    """Those that have no finite factor, and those that make their own statistics."""
    statistics = np.full((4, 3), variance, "float32")
    module = batch_norm(statistics, axis=1, training=training)
    (call,) = calls(SimplifyOperators()(module)["main"])
    assert operator_name(call) == "relax.nn.batch_norm"


def test_dropout_is_its_input():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                dropped = R.nn.dropout(x, rate=0.5)
                kept = dropped[0]
                y = R.nn.relu(kept)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    assert_becomes(Before, Expected)


def test_the_mask_of_a_dropout_stays():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                dropped = R.nn.dropout(x, rate=0.5)
                mask = dropped[1]
                R.output(mask)
            return mask

    assert_becomes(Module, Module)


def test_a_sum_of_stacked_tensors_is_a_chain_of_additions():
    @I.ir_module
    class Before:
        @R.function
        def main(
            a: R.Tensor((2, 3), "float32"),
            b: R.Tensor((2, 3), "float32"),
            c: R.Tensor((2, 3), "float32"),
        ):
            with R.dataflow():
                stacked = R.stack((a, b, c), axis=0)
                y = R.sum(stacked, axis=[0])
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(
            a: R.Tensor((2, 3), "float32"),
            b: R.Tensor((2, 3), "float32"),
            c: R.Tensor((2, 3), "float32"),
        ):
            with R.dataflow():
                ab = R.add(a, b)
                y = R.add(ab, c)
                R.output(y)
            return y

    assert_becomes(Before, Expected)


@pytest.mark.parametrize(
    ("reduction", "of_two"),
    [("max", np.maximum), ("min", np.minimum), ("mean", lambda a, b: (a + b) / 2)],
)
def test_other_reductions_of_stacked_tensors_are_chains_as_well(reduction, of_two):
    parts = [relax.Var(name, R.Tensor((2, 3), "float32")) for name in "ab"]
    builder = relax.BlockBuilder()
    with builder.function("main", parts):
        with builder.dataflow():
            stacked = builder.emit(relax.op.stack(parts, axis=0))
            y = builder.emit_output(getattr(relax.op, reduction)(stacked, axis=[0]))
        builder.emit_func_output(y)
    simplified = SimplifyOperators()(builder.get())
    assert "stack" not in simplified.script()
    a, b = np.random.default_rng(0).standard_normal((2, 2, 3)).astype("float32")
    machine = relax.VirtualMachine(relax.build(simplified, "llvm"), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b)).numpy()
    assert_close(got, of_two(a, b), 1e-6)


def test_a_number_is_not_repeated_before_it_meets_a_tensor():
    """As ONNX's Max of a tensor and a constant is imported."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            most = builder.emit(relax.op.broadcast_to(relax.const(6.0), (2, 3)))
            stacked = builder.emit(relax.op.stack([x, most], axis=0))
            y = builder.emit_output(relax.op.min(stacked, axis=[0]))
        builder.emit_func_output(y)
    after = SimplifyOperators()(builder.get())
    (call,) = calls(after["main"])
    assert operator_name(call) == "relax.minimum"
    assert call.args[1].value.numpy().shape == ()


@pytest.mark.parametrize(
    ("stack_axis", "options"),
    [(1, {"axis": [0]}), (0, {"axis": [1]}), (0, {"axis": [0], "keepdims": True}), (0, {})],
)
def test_other_sums_stay(stack_axis, options):
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            stacked = builder.emit(relax.op.stack([x, x], axis=stack_axis))
            y = builder.emit_output(relax.op.sum(stacked, **options))
        builder.emit_func_output(y)
    assert_becomes(builder.get(), builder.get())


@pytest.mark.parametrize("operator", ["add", "subtract", "multiply", "divide", "power"])
@pytest.mark.parametrize("constant_first", [False, True])
def test_a_constant_of_lower_rank_gets_the_rank_of_the_other_side(operator, constant_first):
    def module(constant: relax.Expr) -> tvm.IRModule:
        x = relax.Var("x", R.Tensor((2, 3), "float32"))
        operands = (constant, x) if constant_first else (x, constant)
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                y = builder.emit_output(getattr(relax.op, operator)(*operands))
            builder.emit_func_output(y)
        return builder.get()

    assert_becomes(module(ROW), module(RAISED_ROW))


def test_a_scalar_constant_stays_a_scalar():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.multiply(x, R.const(0.5, "float32"))
                R.output(y)
            return y

    assert_becomes(Module, Module)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_an_exponent_of_one_number_is_a_scalar(shape):
    def module(exponent: relax.Expr) -> tvm.IRModule:
        x = relax.Var("x", R.Tensor((2, 3), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                y = builder.emit_output(relax.op.power(x, exponent))
            builder.emit_func_output(y)
        return builder.get()

    exponent = relax.const(np.full(shape, 0.75, "float32"))
    assert_becomes(module(exponent), module(relax.const(0.75, "float32")))


@pytest.mark.parametrize("exponent", [3.0, 4.0])
def test_a_power_of_a_small_integer_is_products(exponent):
    def module(dtype: str, plain: bool) -> tvm.IRModule:
        builder = relax.BlockBuilder()
        x = relax.Var("x", R.Tensor((2, 3), dtype))
        with builder.function("main", [x]):
            with builder.dataflow():
                if plain:
                    square = builder.emit(relax.op.multiply(x, x))
                    result = relax.op.multiply(square, x if exponent == 3 else square)
                else:
                    result = relax.op.power(x, relax.const(exponent, dtype))
                y = builder.emit_output(result)
            builder.emit_func_output(y)
        return builder.get()

    assert_becomes(module("float32", plain=False), module("float32", plain=True))
    # In 16 bits the square would be rounded too.
    half = module("float16", plain=False)
    assert_becomes(half, half)


def test_an_exponent_that_makes_the_result_larger_stays():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                y = R.power(x, R.const([[0.75]], "float32"))
                R.output(y)
            return y

    assert static_shape(SimplifyOperators()(Module)["main"].body.body) == (1, 3)


def test_a_broadcast_to_the_own_shape_disappears():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), row: R.Tensor((3,), "float32")):
            with R.dataflow():
                same = R.broadcast_to(x, (2, 3))
                wider = R.broadcast_to(row, (2, 3))
                y = R.add(same, wider)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), row: R.Tensor((3,), "float32")):
            with R.dataflow():
                wider = R.broadcast_to(row, (2, 3))
                y = R.add(x, wider)
                R.output(y)
            return y

    assert_becomes(Before, Expected)


def test_a_scale_and_a_zero_point_are_operands():
    """So that layers whose numbers differ share a kernel; vectors and what is none stay.

    As does what changes nothing.
    """
    one, zero = relax.const(1, "float32"), relax.const(0, "uint8")
    scale, point = relax.const(0.5, "float32"), relax.const(3, "uint8")
    one_scale = relax.const(np.array([0.5], "float32"))
    one_point = relax.const(np.array([3], "uint8"))
    scales, points = (relax.const(np.full(3, 2, dtype)) for dtype in ("float32", "uint8"))

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), known: R.Tensor((), "float32")):
            with R.dataflow():
                a = R.quantize(x, scale, point, out_dtype="uint8", axis=1)
                b = R.dequantize(a, known, point, axis=1)
                c = R.quantize(b, scales, points, out_dtype="uint8", axis=1)
                d = R.quantize(known, scale, point, out_dtype="uint8", axis=0)
                e = R.dequantize(c, one, point, axis=1)
                f = R.quantize(e, scale, zero, out_dtype="uint8", axis=1)
                R.output(d, f)
            return (d, f)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), known: R.Tensor((), "float32")):
            with R.dataflow():
                a = R.quantize(x, one_scale, one_point, out_dtype="uint8", axis=1)
                b = R.dequantize(a, known, one_point, axis=1)
                c = R.quantize(b, scales, points, out_dtype="uint8", axis=1)
                d = R.quantize(known, scale, point, out_dtype="uint8", axis=0)
                e = R.dequantize(c, one, one_point, axis=1)
                f = R.quantize(e, one_scale, zero, out_dtype="uint8", axis=1)
                R.output(d, f)
            return (d, f)

    assert_becomes(Before, Expected)


def test_dynamic_shapes_stay():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("n", 3), "float32")):
            n = T.int64()
            with R.dataflow():
                same = R.broadcast_to(x, (n, 3))
                z = R.add(same, y)
                R.output(z)
            return z

    assert_becomes(Module, Module)


def divided(dtype: str, operator: Any, zero: float) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((2, 3), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(operator(x, relax.const(zero, dtype)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_division_by_the_number_zero_is_computed_as_numpy_does(dtype, zero):
    x = np.array([[1, -1, 0], [np.inf, np.nan, -5]], dtype)
    (got,) = tvm_rammer.build(divided(dtype, relax.op.divide, zero)).create()(x)
    with np.errstate(all="ignore"):
        want = x / np.array(zero, dtype)
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("operator", [relax.op.divide, relax.op.floor_divide, relax.op.mod])
def test_integers_divided_by_the_number_zero_are_an_error(operator):
    with pytest.raises(ModelError) as refused:
        tvm_rammer.build(divided("int32", operator, 0))
    name = str(operator(relax.const(1), relax.const(1)).op.name)
    assert str(refused.value) == (
        f"{name} divides integers by the constant 0, which has no result: change the model"
    )


def simplified(operator, *shapes):
    """The function of an operator on tensors of some shapes and types, simplified."""
    tensors = [relax.Var("x", relax.TensorType(shape, dtype)) for shape, dtype in shapes]
    builder = relax.BlockBuilder()
    with builder.function("main", tensors):
        with builder.dataflow():
            y = builder.emit_output(operator(*tensors))
        builder.emit_func_output(y)
    return SimplifyOperators()(builder.get())["main"]


WRITING_NOTHING = {
    "scatter_nd": (
        lambda x, at, rows: relax.op.scatter_nd(x, at, rows, "add"),
        [((3, 4), "float32"), ((0, 1), "int64"), ((0, 4), "float32")],
    ),
    "scatter_elements": (
        lambda x, at, values: relax.op.scatter_elements(x, at, values, 0, "add"),
        [((3, 4), "float32"), ((0, 4), "int64"), ((0, 4), "float32")],
    ),
}


@pytest.mark.parametrize("name", WRITING_NOTHING)
def test_where_nothing_is_written_all_stays(name):
    operator, shapes = WRITING_NOTHING[name]
    function = simplified(operator, *shapes)
    assert not calls(function) and function.body.body.same_as(function.params[0])
