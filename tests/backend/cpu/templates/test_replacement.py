"""Tensors of which a part is replaced: with the rest copied, and with the rest where it is."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, VDEVICES, legalized_func, numbers, run_prim_func
from tvm import relax, tirx

from tvm_rammer.backend.cpu.codegen.marked_loops import SkipNeedlessCopies
from tvm_rammer.backend.cpu.templates.replacement_rule import Replacement
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.replacement import REPLACED, UNLESS_SAME, replaced_parameter
from tvm_rammer.kernel.split import split_into_stages

OP = relax.op
extents = st.sampled_from([1, 2, 3, 5, 8, 13, 16, 17, 33])
shapes = st.lists(extents, min_size=1, max_size=4).map(tuple)
dtypes = st.sampled_from(["float32", "float16", "int8", "int64", "bool"])


def marked(build, *inputs):
    """The PrimFunc of an expression, marked as regions mark it."""
    func = legalized_func(build, *inputs)
    position = replaced_parameter(func)
    assert position is not None
    return func.with_attr(REPLACED, position)


def chosen(shape, asked, dtype="float32"):
    """A condition on some axes, what replaces, and what is kept."""
    places = tuple(n if k in asked else 1 for k, n in enumerate(shape))
    values = tuple(1 if k in asked else n for k, n in enumerate(shape))
    return numbers(places, "bool"), numbers(values, dtype, seed=1), numbers(shape, dtype, seed=2)


@settings(max_examples=40)
@given(data=st.data(), shape=shapes, dtype=dtypes, vdevice=st.sampled_from(VDEVICES))
def test_any_part_of_any_tensor(data, shape, dtype, vdevice):
    axes = range(len(shape))
    asked = data.draw(st.sets(st.sampled_from(axes), max_size=len(shape) - 1))
    inputs = chosen(shape, asked, dtype)
    func, seed = marked(OP.where, *inputs), data.draw(st.integers(0, 9))
    apart = run_prim_func(func, inputs, vdevice=vdevice, seed=seed)
    np.testing.assert_array_equal(apart.outputs[0], np.where(*inputs))
    # Of one element, or where every element is asked for, the usual kernel is as good.
    if any(n > 1 for k, n in enumerate(shape) if k not in asked):
        assert apart.origin == "replacement"
        there = run_prim_func(func, inputs, vdevice=vdevice, seed=seed, in_place=True)
        np.testing.assert_array_equal(there.outputs[0], np.where(*inputs))


def test_what_replaces_is_computed_only_where_it_does():
    """And may be any expression of other tensors."""
    places, new, old = chosen((2, 64, 3, 16), {1})
    other = numbers(new.shape, seed=5)

    def build(places, new, other, old):
        return OP.where(places, OP.add(OP.nn.relu(new), other), old)

    func = marked(build, places, new, other, old)
    for in_place in (False, True):
        # The PrimFunc takes what is used first first.
        run = run_prim_func(func, [new, other, places, old], in_place=in_place)
        want = np.where(places, np.maximum(new, 0) + other, old)
        np.testing.assert_array_equal(run.outputs[0], want)
        assert run.origin == "replacement"


def test_all_numbers_of_tiles():
    inputs = chosen((6, 40, 32), {1})
    func = marked(OP.where, *inputs)
    rule = Replacement()
    found = rule.match(func, frozenset(), HOST)
    space = rule.space(found)
    assert sorted(tiles.count for tiles in space) == [1, 2, 3, 6]
    choices = list(rule.choices(func, frozenset(), HOST))
    for choice, tiles in zip(choices, space, strict=True):
        run = run_prim_func(func, inputs, tuned=lambda *_, one=choice: [one], in_place=True)
        np.testing.assert_array_equal(run.outputs[0], np.where(*inputs))
        assert run.tiles == [tiles.count]


@pytest.mark.parametrize(("shape", "count"), [((8, 128, 16), 1), ((8, 2048, 64), 8)])
def test_long_tensors_have_several_tiles(shape, count):
    func = marked(OP.where, *chosen(shape, {1}))
    assert Replacement().space(Replacement().match(func, frozenset(), HOST))[0].count == count


def test_only_what_is_marked_is_its_own():
    """The usual kernel is better where what is replaced is most of it."""
    inputs = chosen((4, 8, 16), {1})
    func = legalized_func(OP.where, *inputs)
    assert Replacement().match(func, frozenset(), HOST) is None
    assert run_prim_func(func, inputs).origin == "elementwise"


def test_a_condition_on_every_axis_is_left_to_others():
    inputs = chosen((4, 8), {0, 1})
    func = marked(OP.where, *inputs)
    run = run_prim_func(func, inputs)
    assert run.origin == "elementwise" and run.kernel.stages[0].kernel.in_place is None


def test_pointers_that_may_be_one():
    inputs = chosen((4, 8, 16), {1})
    kernel = run_prim_func(marked(OP.where, *inputs), inputs).kernel
    (stage,) = kernel.stages
    source, result = stage.kernel.in_place
    assert (stage.arguments[source], stage.arguments[result]) == (2, 3)
    assert (stage.kernel.modes[source], stage.kernel.modes[result]) == ("read", "write")


def test_nothing_is_copied_onto_itself():
    """The loop that copies stands behind a comparison of addresses, with the text that does it."""
    inputs = chosen((4, 8, 16), {1})
    made = Replacement().apply(marked(OP.where, *inputs), frozenset(), HOST)
    (stage,) = split_into_stages(made.func).stages
    loops = collect(stage.body.body, tirx.For)
    (copying,) = [loop for loop in loops if UNLESS_SAME in loop.annotations]
    assert int(copying.extent) == prod((4, 8, 16)) // stage.num_tiles
    body = SkipNeedlessCopies()(tvm.IRModule({"main": stage.body}))["main"].body
    assert body.attr_key == "pragma_import_llvm" and "@rammer_apart" in body.value.value
    tests = collect(body, tirx.IfThenElse)
    (apart,) = [test for test in tests if "rammer_apart" in str(test.condition)]
    assert UNLESS_SAME in apart.then_case.annotations
    plain = tvm.IRModule({"main": tirx.PrimFunc([], tirx.Evaluate(0))})
    assert "rammer_apart" not in str(SkipNeedlessCopies()(plain))
