"""Reductions over any axes, in vectors along a row or across rows."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, VDEVICES, legalized_func, numbers, run_prim_func, run_relax
from tvm import relax, te, topi
from tvm.script import tirx as T

from tvm_rammer.backend.cpu.templates.reduction_rule import Reduction

OP = relax.op
WIDE = VDEVICES[0]
QUICK = settings(max_examples=15)
vdevices = st.sampled_from(VDEVICES)
REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}


def reduce_with(name, axes, keepdims=False):
    return lambda x: getattr(OP, name)(x, axes, keepdims)


@QUICK
@given(
    data=st.data(),
    shape=st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 36]), min_size=1, max_size=4).map(tuple),
    name=st.sampled_from(list(REDUCE)),
    dtype=st.sampled_from(["float32", "float64", "int32", "int64"]),
    vdevice=vdevices,
)
@example(data=None, shape=(3, 67), name="sum", dtype="float32", vdevice=WIDE)
@example(data=None, shape=(2, 3, 131), name="max", dtype="int64", vdevice=WIDE)
def test_any_axes(data, shape, name, dtype, vdevice):
    """Whether the rule takes it or declines, the numbers agree with numpy."""
    axes = tuple(range(len(shape)))
    if data is not None:
        axes = tuple(sorted(data.draw(st.sets(st.sampled_from(axes), min_size=1))))
    name = "sum" if name == "mean" and dtype.startswith("int") else name
    x = numbers(shape, dtype)
    (out,), _ = run_relax(reduce_with(name, list(axes), True), x, vdevice=vdevice)
    want = REDUCE[name](x.astype("float64") if dtype == "float32" else x, axes, keepdims=True)
    assert_close(out, want.astype(dtype))


@QUICK
@given(
    rows=st.integers(1, 9),
    columns=st.integers(4, 150),
    name=st.sampled_from(list(REDUCE)),
    vdevice=vdevices,
)
def test_along_ragged_rows(rows, columns, name, vdevice):
    """The rest of a row that fills no vector is neither dropped nor read twice."""
    x = numbers((rows, columns))
    (out,), origins = run_relax(reduce_with(name, [1]), x, vdevice=vdevice)
    assert_close(out, REDUCE[name](x.astype("float64"), 1))
    assert origins == ["reduction"]


@QUICK
@given(
    outer=st.integers(1, 3),
    rows=st.integers(4, 150),
    columns=st.integers(2, 9),
    name=st.sampled_from(list(REDUCE)),
    vdevice=vdevices,
)
def test_across_ragged_rows(outer, rows, columns, name, vdevice):
    """Every lane is a row; the last tile may have fewer."""
    x = numbers((outer, columns, rows))
    (out,), origins = run_relax(reduce_with(name, [1]), x, vdevice=vdevice)
    assert_close(out, REDUCE[name](x.astype("float64"), 1))
    assert origins == ["reduction"]


@pytest.mark.parametrize("shape, axes", [((2, 5, 7, 48), [1, 2]), ((2, 48, 5, 7), [2, 3])])
def test_global_average_pool(shape, axes):
    """Over the pixels, whether the channels come last or first, with what follows."""
    x = numbers(shape)
    (out,), origins = run_relax(lambda x: OP.nn.relu(OP.mean(x, axes, True)), x)
    assert_close(out, np.maximum(x.mean(tuple(axes), keepdims=True), 0))
    assert origins == ["reduction"]


def test_fused_reads():
    """What was computed before is part of the vectors, what follows is part of the tile."""
    x, y = numbers((6, 40)), numbers((6, 40), seed=1)
    a, b = te.placeholder(x.shape, name="a"), te.placeholder(x.shape, name="b")
    total = topi.sqrt(topi.sum(topi.abs(topi.multiply(a, b)), 1))
    run = run_prim_func(te.create_prim_func([a, b, total]), [x, y])
    assert run.origin == "reduction"
    assert_close(run.outputs[0], np.sqrt(np.abs(x * y).sum(1)))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["max", "min"])
def test_infinities(name, axis):
    """An extremum of nothing but infinities is one."""
    x = np.full((20, 20), -np.inf if name == "max" else np.inf, "float32")
    x[3, 3] = 1
    (out,), _ = run_relax(reduce_with(name, [axis]), x)
    np.testing.assert_array_equal(out, REDUCE[name](x, axis))


def test_few_lanes_decline():
    """Neither three channels nor a stride fill a vector."""
    for shape, axes in [((2, 8, 8, 3), [1, 2]), ((9, 3), [1])]:
        func = legalized_func(reduce_with("sum", axes), numbers(shape))
        assert Reduction().apply(func, frozenset(), VDEVICES[0]) is None


def test_contractions_decline():
    """A factor that several rows share belongs in registers: the matrix products' rules."""
    x, w = numbers((5, 32)), numbers((7, 32))
    func = legalized_func(lambda x, w: OP.einsum([x, w], "ij,kj->ik"), x, w)
    assert Reduction().apply(func, frozenset(), HOST) is None


def test_tiles_are_rows():
    """Long rows are a tile each, short ones come together."""
    for rows, columns, tiles in [(6, 2000, 6), (64, 32, 2), (7, 32, 1)]:
        x = numbers((rows, columns))
        func = legalized_func(reduce_with("sum", [1]), x)
        assert run_prim_func(func, [x]).tiles == [tiles]


LONG = {
    (70_001,): [0],
    (131_072,): [0],
    (2, 90_017): [1],
    (317, 311): [0, 1],
    (40_000, 20): [0],
    (3, 9_000, 16): [1],
}


@settings(max_examples=8)
@given(
    shape=st.sampled_from(list(LONG)),
    name=st.sampled_from(["sum", "mean", "max"]),
    vdevice=vdevices,
)
def test_long_rows_in_parts(shape, name, vdevice):
    """Few long rows become partial results, which a second stage reduces."""
    x, axes = numbers(shape), LONG[shape]
    func = legalized_func(reduce_with(name, axes), x)
    run = run_prim_func(func, [x], vdevice=vdevice)
    assert_close(run.outputs[0], REDUCE[name](x.astype("float64"), tuple(axes)), 1e-4)
    first, second = run.tiles
    assert first > second
    assert len(run.kernel.scratch) == 1


@T.prim_func(s_tir=True)
def first_columns(x: T.Buffer((8, 32), "float32"), out: T.Buffer((8,), "float32")):
    for i, j in T.grid(8, 32):
        with T.sblock("out"):
            T.where(j < 20)
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                out[vi] = T.float32(0)
            out[vi] = out[vi] + x[vi, vj]


@T.prim_func(s_tir=True)
def last_columns(x: T.Buffer((8, 32), "float32"), out: T.Buffer((8,), "float32")):
    for i, j in T.grid(8, 20):
        with T.sblock("out"):
            vi = T.axis.spatial(8, i)
            vj = T.axis.reduce(32, j + 12)
            with T.init():
                out[vi] = T.float32(0)
            out[vi] = out[vi] + x[vi, vj]


@pytest.mark.parametrize("func, columns", [(first_columns, np.s_[:20]), (last_columns, np.s_[12:])])
def test_parts_of_a_domain(func, columns):
    """Loops over a part of a block's domain are not taken for loops over all of it."""
    x = numbers((8, 32))
    run = run_prim_func(func, [x])
    assert_close(run.outputs[0], x[:, columns].sum(1))
    assert run.origin == "generic"
