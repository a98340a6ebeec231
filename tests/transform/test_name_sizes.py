"""Sizes that are formulas have names afterwards, equal ones the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import tvm_rammer
from tvm_rammer.relax_util import calls_of, operator_name
from tvm_rammer.transform.name_sizes import NameSizes

OP = relax.op
N = tirx.Var("n", "int64")


def module(make, *shapes):
    """A function of what ``make`` computes of tensors."""
    types = [relax.TensorType(shape, "float32") for shape in shapes]
    params = [relax.Var(f"x{number}", ty) for number, ty in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(make(lambda value: builder.emit(value), *params))
        builder.emit_func_output(result)
    return builder.get()


def casts(mod):
    return [
        binding
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.MatchCast)
    ]


def run(mod, *arrays):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def chain(emit, x):
    """Twice as long, and operators behind it; then twice as long again, and back."""
    twice = emit(OP.concat([x, x], axis=1))
    found = emit(OP.add(emit(OP.nn.relu(twice)), twice))
    four = emit(OP.concat([found, emit(OP.negative(twice))], axis=1))
    parts = emit(OP.reshape(four, [2, 2, 2 * N]))
    return OP.sum(parts, axis=[1])


def test_a_formula_is_named_once():
    mod = module(chain, (2, N))
    after = NameSizes()(mod)
    sizes = [binding.ty.shape.values for binding in casts(after)]
    # 2n where it is made, 4n, and 2n where a shape says it.
    assert [len(each) for each in sizes] == [2, 2, 3]
    twice, four, again = (each[-1] for each in sizes)
    assert all(isinstance(each, tirx.Var) for each in (twice, four, again))
    assert again.same_as(twice) and not four.same_as(twice)
    kinds = [operator_name(call) for call in calls_of(after)]
    assert kinds == [operator_name(call) for call in calls_of(mod)]


def test_casts_to_formulas_are_casts_to_names():
    """As PyTorch's sizes are; else one size would have two forms, and stand in no one type."""
    m = tirx.Var("m", "int64")

    def told(emit, x, y):
        builder = relax.BlockBuilder.current()
        twice = builder.match_cast(emit(OP.concat([x, x], axis=1)), tensor(2, N * 2))
        same = builder.match_cast(emit(OP.concat([y, y], axis=1)), tensor(2, 2 * N))
        return emit(OP.where(emit(OP.greater(twice, same)), twice, same))

    def tensor(*shape):
        return relax.TensorType(shape, "float32")

    after = NameSizes()(module(told, (2, N), (2, m)))
    *_, compared, chosen = (call.ty.shape.values for call in calls_of(after))
    assert all(isinstance(size, tirx.Var) for size in (compared[1], chosen[1]))
    assert compared[1].same_as(chosen[1])
    x, y = (np.random.default_rng(k).standard_normal((2, 3)).astype("float32") for k in (0, 1))
    np.testing.assert_array_equal(run(after, x, y), np.maximum(*(np.tile(v, 2) for v in (x, y))))


def test_a_cast_to_a_formula_is_still_seen_to_fit():
    m = tirx.Var("m", "int64")

    def told(emit, x, y):
        twice = relax.TensorType((2, 2 * N), "float32")
        return emit(OP.nn.relu(relax.BlockBuilder.current().match_cast(y, twice)))

    after = NameSizes()(module(told, (2, N), (2, m)))
    x, y = (np.ones((2, size), "float32") for size in (3, 6))
    np.testing.assert_array_equal(run(after, x, y), y)
    with pytest.raises(RuntimeError, match="match_cast"):
        run(after, x, y[:, :5])


@pytest.mark.parametrize(
    "formula",
    [
        lambda n: tirx.Cast("int64", n),
        lambda n: tirx.max(tirx.Select(n < 2, n + 1, n), 0),
        lambda n: tirx.if_then_else(n < 2, n + 1, n),
    ],
)
def test_sizes_of_casts_and_choices_have_no_names(formula):
    """TVM's FuseTIR ends the process with such names."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((N,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():

            def filled(tensor, count):
                return te.compute((count,), lambda i: tensor[0] + i.astype("float32"), "filled")

            found = builder.emit_te(filled, x, formula(N))
            result = builder.emit_output(builder.emit(OP.exp(builder.emit(OP.negative(found)))))
        builder.emit_func_output(result)
    tvm_rammer.build(builder.get())
    data = np.full(3, 0.5, "float32")
    got = run(NameSizes()(builder.get()), data)
    np.testing.assert_allclose(got, np.exp(-0.5 - np.arange(3)), 1e-6)


def test_it_computes_the_same():
    mod = module(chain, (2, N))
    for count in (1, 5):
        x = np.random.default_rng(0).standard_normal((2, count)).astype("float32")
        np.testing.assert_array_equal(run(NameSizes()(mod), x), run(mod, x))


def test_sizes_without_formulas_stay():
    known = module(lambda emit, x: OP.nn.relu(emit(OP.concat([x, x], axis=1))), (2, 3))
    named = module(lambda emit, x: OP.nn.relu(emit(OP.negative(x))), (2, N))
    for mod in (known, named):
        assert NameSizes()(mod).same_as(mod)


def test_once_is_enough():
    once = NameSizes()(module(chain, (2, N)))
    assert NameSizes()(once).same_as(once)


def test_what_a_branch_names_holds_there_only():
    x = relax.Var("x", relax.TensorType((2, N), "float32"))
    which = relax.Var("which", relax.TensorType((), "bool"))
    builder = relax.BlockBuilder()

    def branch(factor):
        builder._begin_binding_block()
        twice = builder.emit(OP.concat([x, x], axis=1))
        last = builder.emit(OP.sum(OP.multiply(twice, relax.const(factor, "float32"))))
        return relax.SeqExpr([builder._end_block()], last)

    with builder.function("main", [x, which]):
        result = builder.emit(relax.If(which, branch(2.0), branch(3.0)))
        builder.emit_func_output(result)
    library = tvm_rammer.build(builder.get(), "llvm")
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    data = np.ones((2, 4), "float32")
    for which_one, wanted in ((True, 32), (False, 48)):
        arrays = map(tvm.runtime.tensor, (data, np.array(which_one)))
        assert float(machine["main"](*arrays).numpy()) == wanted


def test_operators_behind_a_longer_result_are_fused():
    """A convolution over twice as many places, and what follows it, are one kernel."""
    weight = np.random.default_rng(0).standard_normal((8, 8, 3)).astype("float32")

    def make(emit, x):
        twice = emit(OP.concat([x, x], axis=2))
        found = emit(OP.nn.conv1d(twice, relax.const(weight), padding=1))
        return OP.add(emit(OP.nn.relu(found)), twice)

    mod = module(make, (1, 8, N))
    library = tvm_rammer.build(mod, "llvm")
    x = np.random.default_rng(1).standard_normal((1, 8, 50)).astype("float32")
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, run(mod, x), rtol=1e-4, atol=1e-4)
    text = library.executable.as_text()
    assert "relu" not in text.replace("conv1d_relu", "").replace("conv1d_add", "")


def smoothed(emit, x):
    """Sums of two, which are one less, and sums of these and zeros around, which are as many."""
    ones = relax.const(np.ones((1, 1, 2), "float32"))
    fewer = emit(OP.nn.relu(emit(OP.nn.conv1d(x, ones))))
    return emit(OP.add(emit(OP.nn.conv1d(fewer, ones, padding=1)), x))


def test_a_name_is_not_made_of_itself():
    """TVM dies where casts say so."""
    mod = module(smoothed, (1, 1, N))
    named = [binding.ty.shape.values[2] for binding in casts(NameSizes()(mod))]
    assert named and not any(size.same_as(N) for size in named)
    x = np.random.default_rng(2).standard_normal((1, 1, 7)).astype("float32")
    fewer = np.pad(np.maximum(x[..., 1:] + x[..., :-1], 0), [(0, 0), (0, 0), (1, 1)])
    found = tvm_rammer.build(mod).create()(x)[0].numpy()
    np.testing.assert_allclose(found, fewer[..., 1:] + fewer[..., :-1] + x, 1e-5, 1e-6)
