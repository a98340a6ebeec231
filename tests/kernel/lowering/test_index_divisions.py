"""Indices that are divided again stay what they are while buffers are flattened."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from kernel_runs import numbers, run_relax
from tvm import relax, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.lowering.index_divisions import (
    HideDivisions,
    PositiveDivision,
    ShowDivisions,
)
from tvm_rammer.kernel.nodes import collect

_OPERATIONS = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
}


def const(value: int) -> Any:
    return tirx.const(value, "int64")


def value_of(expression: Any, places: Mapping[Any, int]) -> int:
    if isinstance(expression, tirx.IntImm):
        return int(expression)
    if isinstance(expression, tirx.Var):
        return places[expression]
    a, b = value_of(expression.a, places), value_of(expression.b, places)
    return _OPERATIONS[type(expression)](a, b)


def drawn(rng: random.Random, variables: Sequence[Any], depth: int) -> Any:
    """A random index."""
    if not depth:
        return rng.choice(variables)
    x, kind = drawn(rng, variables, depth - 1), rng.randrange(5)
    if kind == 0:
        return tirx.floordiv(x + const(rng.randrange(60)), const(rng.choice([2, 3, 5, 10])))
    if kind == 1:
        return tirx.floormod(x + const(rng.randrange(60)), const(rng.choice([4, 5, 10, 30])))
    if kind == 2:
        return x * const(rng.choice([2, 3, 5])) + const(rng.randrange(20))
    if kind == 3:
        return x + drawn(rng, variables, depth - 1)
    return tirx.floormod(x, const(rng.choice([10, 30, 60])))


def split_again(u: Any, added: Sequence[int]) -> Any:
    """The place of a sum of an index and a constant, axis by axis: what fused slices become."""
    rows = tirx.floordiv(u + const(added[0]), const(10)) * const(10)
    columns = tirx.floordiv(tirx.floormod(u + const(added[1]), const(10)), const(5)) * const(5)
    return rows + columns + tirx.floormod(u + const(added[2]), const(5)) + const(added[3])


def flattened(index: Any, variables: Sequence[Any], extents: Sequence[int]) -> Any:
    """A load from that index, and the loops around it, once buffers are flat."""
    source = tirx.decl_buffer((10**7,), "float32", name="source")
    target = tirx.decl_buffer(extents, "float32", name="target")
    body = tirx.BufferStore(target, tirx.BufferLoad(source, [index]), list(variables))
    for variable, extent in zip(variables, extents, strict=True):
        body = tirx.For(variable, const(0), const(extent), tirx.ForKind.SERIAL, body)
    func = tirx.PrimFunc([source, target], body).with_attr("global_symbol", "main")
    passes = [PositiveDivision(), HideDivisions(), tirx.transform.FlattenBuffer(), ShowDivisions()]
    made = tvm.transform.Sequential(passes)(tvm.IRModule({"main": func}))["main"].body
    found = {loop.loop_var.name: loop.loop_var for loop in collect(made, tirx.For)}
    (load,) = collect(made, TensorLoad)
    return load.indices[0], [found[variable.name] for variable in variables]


@pytest.mark.parametrize("seed", range(150))
def test_a_random_index_stays_what_it_is(seed):
    rng = random.Random(seed)
    variables, extents = [tirx.Var("v", "int64"), tirx.Var("w", "int64")], (60, 13)
    index = drawn(rng, variables, rng.randrange(1, 4))
    if seed % 2:
        index = split_again(index, [rng.randrange(100) for _ in range(4)])
    found, loops = flattened(index, variables, extents)
    for v in range(0, extents[0], 3):
        for w in range(extents[1]):
            want = value_of(index, dict(zip(variables, (v, w), strict=True)))
            assert value_of(found, dict(zip(loops, (v, w), strict=True))) == want


def test_only_what_mixes_constants_with_divisions_is_hidden():
    v = tirx.Var("v", "int64")
    plain = [tirx.floordiv(v + const(3), const(5)), tirx.floormod(tirx.floordiv(v, 4), const(5))]
    for index in plain:
        body = tirx.Evaluate(index)
        mod = tvm.IRModule({"main": tirx.PrimFunc([v], body)})
        assert tvm_ffi.structural_equal(HideDivisions()(mod)["main"].body, body)
    body = tirx.Evaluate(tirx.floordiv(tirx.floormod(v, const(30)) + const(6), const(10)))
    mod = tvm.IRModule({"main": tirx.PrimFunc([v], body)})
    hidden = HideDivisions()(mod)
    assert "rammer_floordiv" in str(hidden["main"])
    assert tvm_ffi.structural_equal(ShowDivisions()(hidden)["main"].body, body)


def test_a_slice_of_what_was_repeated():
    """Of a tensor of several axes; TVM's own simplification read other elements."""
    x = numbers((1, 16, 17, 5))

    def build(x):
        flat = relax.op.reshape(x, (1360,))
        part = relax.op.strided_slice(flat, axes=[0], begin=[522], end=[947])
        return relax.op.strided_slice(relax.op.tile(part, [8]), axes=[0], begin=[0], end=[3366])

    (out,), _ = run_relax(build, x)
    np.testing.assert_array_equal(out, np.tile(x.reshape(-1)[522:947], 8)[:3366])
