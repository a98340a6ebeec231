"""A reduction of as many elements as the run finds is started also where there are none."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.transform.start_reductions import StartReductions

OP = relax.op


def test_the_start_has_a_loop_nest_of_its_own():
    @I.ir_module
    class Before:
        @T.prim_func(private=True, s_tir=True)
        def main(x_handle: T.handle, y: T.Buffer((3,), "float32")):
            n = T.int64()
            x = T.match_buffer(x_handle, (n, 3), "float32")
            for i, j in T.grid(3, n):
                with T.sblock("sum"):
                    v_i, v_j = T.axis.remap("SR", [i, j])
                    T.reads(x[v_j, v_i])
                    T.writes(y[v_i])
                    with T.init():
                        y[v_i] = T.float32(0)
                    y[v_i] = y[v_i] + x[v_j, v_i]

    after = StartReductions()(Before)
    names = []
    tvm_ffi.structural_walk(
        after["main"].body,
        (tvm.s_tir.SBlock, lambda each: names.append((each.name_hint, each.init is None))),
    )
    assert sorted(names) == [("root", True), ("sum_init", True), ("sum_update", True)]
    assert StartReductions()(after).same_as(after)


def test_reductions_of_known_sizes_and_loops_of_others_stay():
    x = te.placeholder((4, 3), "float32", "x")
    k = te.reduce_axis((0, 4), "k")
    known = te.create_prim_func([x, te.compute((3,), lambda i: te.sum(x[k, i], axis=k), "sum")])
    mod = tvm.IRModule({"main": known})
    assert StartReductions()(mod).same_as(mod)


def chosen(builder, x, mask, name):
    """As many rows as a mask says."""
    count = tirx.Var(name, "int64")
    places = builder.emit(OP.nonzero(mask))
    places = builder.match_cast(places, relax.TensorType((1, count), "int64"))
    return builder.emit(OP.take(x, builder.emit(OP.reshape(places, (count,))), 0))


REDUCTIONS = {
    "sum": (lambda y, z: OP.sum(y), lambda y, z: y.sum()),
    "sum_of_columns": (lambda y, z: OP.sum(y, axis=[0]), lambda y, z: y.sum(0)),
    "product": (lambda y, z: OP.prod(y, axis=[0]), lambda y, z: y.prod(0)),
    "mean_of_squares": (
        lambda y, z: OP.mean(OP.multiply(y, y), axis=[0]),
        lambda y, z: (y * y).mean(0) if len(y) else np.full(8, np.nan),
    ),
    "gram": (lambda y, z: OP.matmul(OP.permute_dims(y), y), lambda y, z: y.T @ y),
    "over_others": (
        lambda y, z: OP.sum(OP.matmul(y, OP.permute_dims(z)), axis=[1]),
        lambda y, z: (y @ z.T).sum(1),
    ),
    "of_products": (
        lambda y, z: OP.matmul(OP.matmul(y, OP.permute_dims(z)), z),
        lambda y, z: (y @ z.T) @ z,
    ),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_results_of_no_elements(name):
    ours, theirs = REDUCTIONS[name]
    params = [
        relax.Var("x", relax.TensorType((6, 8), "float32")),
        *(relax.Var(each, relax.TensorType((6,), "bool")) for each in ("first", "second")),
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            x, first, second = params
            y, z = chosen(builder, x, first, "m"), chosen(builder, x, second, "n")
            result = builder.emit_output(builder.normalize(ours(y, z)))
        builder.emit_func_output(result)
    instance = tvm_rammer.build(builder.get()).create()
    data = np.random.default_rng(0).random((6, 8), np.float32)
    every, none = np.ones(6, bool), np.zeros(6, bool)
    some = np.arange(6) % 2 == 0
    # What a run without elements finds in memory is what another has left there.
    for own, others in ((every, every), (none, every), (some, none), (none, none), (every, some)):
        (got,) = instance(data, own, others)
        np.testing.assert_allclose(got.numpy(), theirs(data[own], data[others]), 1e-5)
