"""Legalizing equal operators once gives what TVM's LegalizeOps gives."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import Call
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.frontend import load_model
from tvm_rammer.kernel.blocks import reduces
from tvm_rammer.region.concatenations import CONCATENATION
from tvm_rammer.testing import models
from tvm_rammer.transform.legalize_operators import LegalizeOperators
from tvm_rammer.transform.simplify_operators import SimplifyOperators

#: Together they have every kind of operator of the zoo.
NETWORKS = ("lstm_8x8x256", "bert_base", "nasnet_cifar", "mixture_of_experts", "shufflenet")


def prim_funcs(mod: tvm.IRModule) -> list[str]:
    return [g.name_hint for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)]


def count_after(build: Callable[[relax.BlockBuilder, relax.Var], list[relax.Expr]]) -> int:
    """PrimFuncs that the results of ``build`` become."""
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            results = builder.emit_output(relax.Tuple(build(builder, x)))
        builder.emit_func_output(results)
    return len(prim_funcs(LegalizeOperators()(builder.get())))


def without_marks(mod: tvm.IRModule) -> tvm.IRModule:
    """Concatenations are marked: they are not fused."""
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for symbol, func in mod.functions_items():
        if func.attrs and CONCATENATION in func.attrs:
            result[symbol] = func.without_attr(CONCATENATION).without_attr("op_pattern")
    return result


@pytest.mark.parametrize("name", NETWORKS)
def test_the_result_is_that_of_legalize_ops(name):
    mod = SimplifyOperators()(load_model(models.MODELS[name].tiny()).module)
    mod = relax.transform.DecomposeOpsForInference()(mod)
    ours = LegalizeOperators()(mod)
    tvm.ir.assert_structural_equal(without_marks(ours), relax.transform.LegalizeOps()(mod))
    tvm.ir.assert_structural_equal(LegalizeOperators()(ours), ours)


def test_equal_operators_share_one_prim_func():
    assert count_after(lambda b, x: [b.emit(relax.op.tanh(x)) for _ in range(5)]) == 1


def test_operators_that_differ_in_an_attribute_do_not():
    assert count_after(lambda b, x: [b.emit(relax.op.sum(x, axis=[a])) for a in (0, 1)]) == 2


def test_operators_that_differ_in_the_value_of_a_scalar_do_not():
    def scaled(builder: relax.BlockBuilder, x: relax.Var) -> list[relax.Expr]:
        factors = [relax.const(value, "float32") for value in (1.5, 2.5, 1.5)]
        return [builder.emit(relax.op.multiply(x, factor)) for factor in factors]

    assert count_after(scaled) == 2


def test_operators_that_differ_in_a_shape_or_a_dtype_do_not():
    def cast(builder: relax.BlockBuilder, x: relax.Var) -> list[relax.Expr]:
        row = builder.emit(relax.op.reshape(x, (1, 6)))
        wide = builder.emit(relax.op.astype(x, "float64"))
        return [builder.emit(relax.op.tanh(value)) for value in (x, row, wide)]

    assert count_after(cast) == 2 + 3


def test_operators_on_the_same_tensor_twice_are_not_mixed_up_with_those_on_two():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.subtract(x, x)
                b = R.subtract(y, x)
                c = R.multiply(a, b)
                R.output(c)
            return c

    ours = LegalizeOperators()(Module)
    calls = [b.value for block in ours["main"].body.blocks for b in block.bindings]
    x, y = ours["main"].params
    assert [call.args[0].name_hint for call in calls[:2]] == ["subtract", "subtract"]
    assert list(calls[0].args[1].fields) == [x, x]
    assert list(calls[1].args[1].fields) == [y, x]


def test_concatenations_tuples_and_dynamic_shapes_become_what_they_are_to_legalize_ops():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((2, 3), "float32")):
            n = T.int64()
            with R.dataflow():
                a = R.broadcast_to(x, (2, n, 3))
                b = R.concat((y, y), axis=0)
                c = R.split(b, 2, axis=0)
                d = (a, b, c)
                R.output(d)
            return d

    ours = without_marks(LegalizeOperators()(Module))
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps()(Module))


def test_a_concatenation_of_a_tuple_that_is_a_variable():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 32), "float32")):
            with R.dataflow():
                parts = R.split(x, 2, axis=0)
                whole = R.concat(parts, axis=1)
                R.output(whole)
            return whole

    legalized = LegalizeOperators()(Module)
    (block,) = legalized["main"].body.blocks
    kinds = [type(binding.var) for binding in block.bindings]
    assert kinds == [relax.DataflowVar] * 3 + [relax.Var]
    calls = [b.value for b in block.bindings if isinstance(b.value, Call)]
    assert [call.args[0].name_hint for call in calls] == ["split", "concatenate"]
    assert CONCATENATION in legalized["concatenate"].attrs
    tvm.ir.assert_structural_equal(without_marks(legalized), relax.transform.LegalizeOps()(Module))


def test_a_cast_of_a_shape_keeps_what_it_checks():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor(("n",), "float32")):
            with R.dataflow():
                a = R.tanh(x)
                b = R.match_cast(y, R.Tensor((4,), "float32"))
                c = R.add(a, b)
                R.output(c)
            return c

    legalized = LegalizeOperators()(Module)
    tvm.ir.assert_structural_equal(legalized, relax.transform.LegalizeOps()(Module))
    kinds = [type(b) for block in legalized["main"].body.blocks for b in block.bindings]
    assert relax.MatchCast in kinds


def running(scan: Callable[..., relax.Expr], shape, dtype, axis, exclusive=False, of=None):
    """A module of a running sum or product between two other operators."""
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            data = builder.emit(relax.op.where(relax.op.equal(x, x), x, x))
            sums = builder.emit(scan(data, axis, of, exclusive))
            result = builder.emit_output(relax.op.add(sums, sums))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("shape", "dtype", "axis", "exclusive", "of"),
    [
        ((4, 7), "int64", 1, False, None),
        ((4, 7), "float32", 0, True, None),
        ((2, 3, 5), "bool", 1, False, "int32"),
        ((2, 3, 5), "int32", None, False, None),
        ((1, 1), "int64", -1, True, None),
        ((0, 3), "int64", 0, False, None),
        ((2, 0), "int64", 1, False, None),
    ],
)
def test_running_sums_are_planned_with_what_is_around_them(shape, dtype, axis, exclusive, of):
    mod = running(relax.op.cumsum, shape, dtype, axis, exclusive, of)
    library = tvm_rammer.build(mod)
    data = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    wanted = np.cumsum(data, axis, dtype=of or dtype)
    if exclusive:
        wanted -= data.astype(wanted.dtype)
    np.testing.assert_array_equal(library.create()(data)[0].numpy(), 2 * wanted)
    interpreted = tvm_rammer.build(mod, backend="interpret").create()
    np.testing.assert_array_equal(interpreted(data)[0].numpy(), 2 * wanted)
    if data.size:
        assert len(library.report.regions) == 1
        assert not library.report.left_out


def test_running_products():
    data = np.arange(1, 7, dtype="float32").reshape(2, 3)
    library = tvm_rammer.build(running(relax.op.cumprod, (2, 3), "float32", 1))
    np.testing.assert_array_equal(library.create()(data)[0].numpy(), 2 * data.cumprod(1))


def test_running_sums_for_gpus_are_reductions():
    mod = running(relax.op.cumsum, (4, 7), "int64", None)
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        after = LegalizeOperators()(mod)
    (func,) = (func for name, func in after.functions_items() if name.name_hint == "scan")
    assert reduces(func)


def test_marks_that_the_code_generator_for_cpus_warns_of_are_taken_away():
    x = relax.Var("x", R.Tensor((5, 7), "float32"))
    places = relax.const(np.array([[1], [3]], "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        updates = relax.const(np.ones((2, 7), "float32"))
        builder.emit_func_output(builder.emit(relax.op.scatter_nd(x, places, updates)))
    module = builder.get()
    assert "pragma_scope" in relax.transform.LegalizeOps()(module).script()
    found = LegalizeOperators()(module)
    assert prim_funcs(found) == ["scatter_nd"] and "pragma_scope" not in found.script()


def _tensor(shape: tuple[int, ...], dtype: str = "float32") -> relax.Var:
    return relax.Var("x", relax.TensorType(shape, dtype))


OF_NOTHING = {
    "layer_norm": (
        lambda x, scale: relax.op.nn.layer_norm(x, scale, scale, [-1]),
        [_tensor((3, 0)), _tensor((0,))],
    ),
    "gather_elements": (
        lambda x, at: relax.op.gather_elements(x, at, 0),
        [_tensor((3, 4)), _tensor((0, 4), "int64")],
    ),
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_what_has_no_elements_is_nothing_to_compute(name):
    """TVM's own rules fail."""
    operator, inputs = OF_NOTHING[name]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            y = builder.emit_output(operator(*inputs))
        builder.emit_func_output(y)
    assert prim_funcs(LegalizeOperators()(builder.get())) == ["empty"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_comparisons_of_a_tensor_with_itself_find_nan(dtype):
    x = relax.Var("x", relax.TensorType((5,), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            comparisons = (relax.op.equal, relax.op.less_equal, relax.op.greater_equal)
            answers = [builder.emit(compare(x, x)) for compare in comparisons]
            answers.append(builder.emit(relax.op.logical_not(relax.op.not_equal(x, x))))
            results = builder.emit_output(relax.Tuple(answers))
        builder.emit_func_output(results)
    instance = tvm_rammer.build(builder.get()).create()
    values = np.array([1, np.nan, np.inf, -0.0, -np.inf], dtype)
    instance.set_input("x", values)
    instance.run()
    for number in range(4):
        np.testing.assert_array_equal(instance.get_output(number).numpy(), ~np.isnan(values))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_is_not_equal_to_anything(dtype):
    x, y = (relax.Var(name, relax.TensorType((5,), dtype)) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            unlike = builder.emit(relax.op.not_equal(x, y))
            number = builder.emit(relax.op.not_equal(x, relax.const(1, dtype)))
            results = unlike, number, builder.emit(relax.op.logical_not(unlike))
            outputs = [builder.emit_output(each) for each in results]
        builder.emit_func_output(outputs)
    values = np.array([[1, np.nan, np.nan, np.inf, 0], [1, np.nan, 2, 3, -0.0]], dtype)
    found = [each.numpy() for each in tvm_rammer.build(builder.get()).create()(*values)]
    unlike = values[0] != values[1]
    np.testing.assert_array_equal(found, [unlike, values[0] != 1, ~unlike])
