"""A reduction of no elements is what it starts from."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.transform.reduce_nothing import ReduceNothing


def test_a_maximum_of_nothing_is_minus_infinity():
    @I.ir_module
    class Before:
        @T.prim_func(private=True, s_tir=True)
        def main(x: T.Buffer((2, 0, 3), "float32"), y: T.Buffer((3,), "float32")):
            for i, j, k in T.grid(3, 2, 0):
                with T.sblock("max"):
                    v_i, v_j, v_k = T.axis.remap("SRR", [i, j, k])
                    T.reads(x[v_j, v_k, v_i])
                    T.writes(y[v_i])
                    with T.init():
                        y[v_i] = T.float32(-3.4028234663852886e38)
                    y[v_i] = T.max(y[v_i], x[v_j, v_k, v_i])

    @I.ir_module
    class Expected:
        @T.prim_func(private=True, s_tir=True)
        def main(x: T.Buffer((2, 0, 3), "float32"), y: T.Buffer((3,), "float32")):
            for i in range(3):
                with T.sblock("max"):
                    v_i = T.axis.spatial(3, i)
                    T.reads()
                    T.writes(y[v_i])
                    y[v_i] = T.float32("-inf")

    tvm.ir.assert_structural_equal(ReduceNothing()(Before), Expected)
    tvm.ir.assert_structural_equal(ReduceNothing()(Expected), Expected)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_maximum_of_a_constant_without_elements(dtype):
    """It is evaluated when compiling."""
    z = relax.Var("z", relax.TensorType((3,), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [z]):
        with builder.dataflow():
            nothing = builder.emit(relax.op.zeros((0, 3), dtype))
            most = builder.emit(relax.op.max(nothing, 0))
            y = builder.emit_output(relax.op.maximum(most, z))
        builder.emit_func_output(y)
    given = np.arange(3, dtype=dtype)
    (got,) = tvm_rammer.build(builder.get(), policy="sequential").create()(given)
    np.testing.assert_array_equal(got.numpy(), given)
