"""Questions about Relax expressions; a pass without work gives back the module it was given."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import PrimType
from tvm.script import relax as R

from tvm_rammer.relax_util import calls_any, variables_read
from tvm_rammer.transform.fold_affine import FoldAffine
from tvm_rammer.transform.fold_constants import FoldConstants
from tvm_rammer.transform.fuse_channel_windows import FuseChannelWindows
from tvm_rammer.transform.fuse_normalizations import FuseNormalizations

OP = relax.op
PASSES = [FoldAffine, FoldConstants, FuseChannelWindows, FuseNormalizations]


def module(make):
    """A function of two dataflow blocks with an operator between them."""
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_output(OP.tanh(x))
        between = builder.emit(OP.exp(first))
        with builder.dataflow():
            made = builder.emit(make(between))
            last = builder.emit_output(OP.add(made, first))
        builder.emit_func_output(last)
    return builder.get()


@pytest.mark.parametrize("step", PASSES)
def test_a_module_without_work_is_not_copied(step):
    mod = module(OP.sigmoid)
    assert step()(mod).same_as(mod)


def test_a_change_in_one_block_is_kept():
    value = relax.const(np.full((4, 4), 2, "float32"))
    mod = module(lambda x: OP.multiply(x, OP.negative(value)))
    folded = FoldConstants()(mod)
    assert not folded.same_as(mod)
    assert "R.negative" not in folded.script()


def test_operators_inside_of_a_branch_are_seen():
    @R.function(private=True)
    def choose(condition: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        if condition:  # noqa: SIM108 - an If of Relax
            y = R.sqrt(x)
        else:
            y = R.exp(x)
        return y

    mod = tvm.IRModule({"choose": choose})
    assert calls_any(mod, {"relax.sqrt"})
    assert calls_any(mod, {"relax.exp"})
    assert not calls_any(mod, {"relax.tanh"})


def test_the_variables_that_a_value_reads():
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    n = relax.Var("n", PrimType("int64"))
    one = relax.const(np.ones(4, "float32"))
    assert variables_read(x) == [x]
    assert variables_read(OP.add(x, x)) == [x, x]
    assert variables_read(OP.add(one, one)) == []
    assert variables_read(relax.Tuple([x, one, relax.Tuple([x])])) == [x, x]
    assert variables_read(relax.TupleGetItem(relax.Tuple([x]), 0)) == [x]
    assert variables_read(OP.reshape(x, relax.ShapeExpr([n]))) == [x, n]
