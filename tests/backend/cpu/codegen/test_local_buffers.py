"""Buffers that are marked as local to a loop are no business of TVM's allocator."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T

from tvm_rammer.backend.cpu.codegen.local_buffers import UnmarkLocalBuffers
from tvm_rammer.backend.cpu.codegen.lowering import module_builder
from tvm_rammer.kernel.nodes import collect


@T.prim_func(s_tir=True)
def main(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True, "tirx.is_scheduled": True})
    for row in range(8):
        kept = T.alloc_buffer((4,), "float32", scope="local")
        for column in T.vectorized(4):
            kept[column] = x[row, column] * T.float32(2)
        y[row] = kept[0] + kept[3]


def test_the_mark_is_taken_away():
    found = UnmarkLocalBuffers()(tvm.IRModule({"main": main}))
    (allocated,) = collect(found["main"].body, tirx.AllocBuffer)
    assert allocated.buffer.scope() == "global"
    stores = collect(found["main"].body, tirx.BufferStore)
    loads = collect(found["main"].body, TensorLoad)
    touched = {store.buffer for store in stores} | {load.source for load in loads}
    assert {buffer.name for buffer in touched} == {"kept", "x", "y"}
    assert {buffer for buffer in touched if buffer.name == "kept"} == {allocated.buffer}


def test_there_are_no_calls_of_the_allocator():
    module = module_builder(tvm.target.Target("llvm"))(tvm.IRModule({"main": main}))
    assert "call ptr %" not in module.inspect_source("ll")
    x = np.random.default_rng(0).standard_normal((8, 4)).astype("float32")
    result = tvm.runtime.tensor(np.zeros(8, "float32"))
    module["main"](tvm.runtime.tensor(x), result)
    np.testing.assert_array_equal(result.numpy(), 2 * (x[:, 0] + x[:, 3]))
