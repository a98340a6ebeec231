"""Products with matrices that are repeated multiply the rows of a group together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import run
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import calls_of, operator_name, static_shape
from tvm_rammer.transform.multiply_repeated import MultiplyRepeated

OP = relax.op
Build = Callable[[Any, Any, Any], Any]


def module(build: Build, left: tuple[int, ...], right: tuple[int, ...]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in (("x", left), ("y", right)))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, x, y))
        builder.emit_func_output(result)
    return builder.get()


def repeated(emit: Any, y: Any, times: int) -> Any:
    """As ``repeat_kv`` of transformers."""
    batch, heads, rows, columns = static_shape(y)
    more = emit(OP.broadcast_to(emit(OP.expand_dims(y, 2)), (batch, heads, times, rows, columns)))
    return emit(OP.reshape(more, (batch, heads * times, rows, columns)))


def products(mod: tvm.IRModule) -> list[tuple[int, ...]]:
    """The shapes of the products, if nothing is repeated any more."""
    calls = list(calls_of(mod))
    if any(operator_name(call) == "relax.broadcast_to" for call in calls):
        return []
    return [static_shape(call) for call in calls if operator_name(call) == "relax.matmul"]


def assert_same(mod: tvm.IRModule, after: tvm.IRModule) -> None:
    rng = np.random.default_rng(0)
    shapes = [static_shape(param) for param in mod["main"].params]
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    (want,) = run(relax.build(mod, "llvm"), inputs)
    (got,) = run(relax.build(after, "llvm"), inputs)
    assert_close(got, want)
    library = tvm_rammer.build(mod, policy="wavefront", num_veus=2)
    assert_close(library.create()(*inputs)[0].numpy(), want)


def scores(emit: Any, x: Any, y: Any) -> Any:
    """Queries times keys, both scaled, with one axis for batch and heads."""
    keys = emit(OP.permute_dims(repeated(emit, y, 3), [0, 1, 3, 2]))
    scaled = emit(OP.multiply(keys, relax.const(0.5, "float32")))
    batch, heads, columns, rows = static_shape(scaled)
    flat = emit(OP.reshape(scaled, (batch * heads, columns, rows)))
    return emit(OP.matmul(x, flat))


def test_queries_of_a_group_are_rows_of_one_product():
    mod = module(scores, (12, 5, 8), (2, 2, 7, 8))
    after = MultiplyRepeated()(mod)
    assert products(after) == [(4, 15, 7)]
    assert_same(mod, after)


def test_values_are_read_once():
    mod = module(lambda emit, x, y: OP.matmul(x, repeated(emit, y, 4)), (1, 8, 1, 7), (1, 2, 7, 6))
    after = MultiplyRepeated()(mod)
    assert products(after) == [(2, 4, 6)]
    assert_same(mod, after)


def test_an_axis_of_its_own_for_the_group():
    def build(emit, x, y):
        return OP.matmul(x, emit(OP.broadcast_to(emit(OP.expand_dims(y, 1)), (3, 4, 7, 6))))

    mod = module(build, (3, 4, 2, 7), (3, 7, 6))
    after = MultiplyRepeated()(mod)
    assert products(after) == [(3, 8, 6)]
    assert_same(mod, after)


def groups_outside(emit: Any, x: Any, y: Any) -> Any:
    """The copies of a matrix are no neighbours."""
    more = emit(OP.broadcast_to(emit(OP.expand_dims(y, 0)), (3, 2, 7, 6)))
    return OP.matmul(x, emit(OP.reshape(more, (6, 7, 6))))


def mixed(emit: Any, x: Any, y: Any) -> Any:
    """Other matrices than those that were repeated."""
    return OP.matmul(x, emit(OP.reshape(repeated(emit, y, 3), (6, 6, 7))))


def one_for_all(emit: Any, x: Any, y: Any) -> Any:
    """The same rows for every matrix."""
    return OP.matmul(x, repeated(emit, y, 3))


def other_scales(emit: Any, x: Any, y: Any) -> Any:
    scales = relax.const(np.arange(6, dtype="float32").reshape(6, 1, 1))
    return OP.matmul(
        x, emit(OP.multiply(emit(OP.reshape(repeated(emit, y, 3), (6, 7, 6))), scales))
    )


def of_rows(emit: Any, x: Any, y: Any) -> Any:
    """Repeated are the other factor's matrices, and this one is an input."""
    return OP.matmul(emit(OP.broadcast_to(x, (6, 2, 7))), y)


@pytest.mark.parametrize(
    ("build", "left", "right"),
    [
        (of_rows, (1, 2, 7), (6, 7, 3)),
        (groups_outside, (6, 2, 7), (2, 7, 6)),
        (mixed, (6, 2, 6), (1, 2, 7, 6)),
        (one_for_all, (1, 1, 2, 7), (1, 2, 7, 6)),
        (other_scales, (6, 2, 7), (1, 2, 7, 6)),
    ],
)
def test_what_is_something_else_stays(build, left, right):
    mod = module(build, left, right)
    assert MultiplyRepeated()(mod).same_as(mod)


@st.composite
def attention(draw: st.DrawFn) -> Any:
    batch, heads, times = (draw(st.integers(1, 3)) for _ in range(3))
    rows, terms, columns = (draw(st.sampled_from([1, 2, 5, 16])) for _ in range(3))
    turned, flat = draw(st.booleans()), draw(st.booleans())
    matrix = (columns, terms) if turned else (terms, columns)

    def build(emit: Any, x: Any, y: Any) -> Any:
        factor = repeated(emit, y, times)
        if turned:
            factor = emit(OP.permute_dims(factor, [0, 1, 3, 2]))
        if not flat:
            return OP.matmul(x, factor)
        count = batch * heads * times
        left = emit(OP.reshape(x, (count, rows, terms)))
        return OP.matmul(left, emit(OP.reshape(factor, (count, terms, columns))))

    return module(build, (batch, heads * times, rows, terms), (batch, heads, *matrix))


@settings(max_examples=10)
@given(attention())
def test_any_attention(mod):
    assert_same(mod, MultiplyRepeated()(mod))
