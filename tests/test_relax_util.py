"""A pass that finds nothing to do gives back the module that it was given."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

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
