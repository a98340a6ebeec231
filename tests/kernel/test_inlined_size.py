"""Sizes of inlined expressions count what indices grow to."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvm_rammer


@pytest.mark.parametrize("between", [None, relax.op.nn.relu], ids=["alone", "relu"])
def test_a_chain_of_reshapes_ends(between):
    """Every second of them mentions its axis twice: inlined whole, sixty are 2 ** 30 nodes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for number in range(60):
                y = builder.emit(relax.op.reshape(y, (8,) if number % 2 else (2, 4)))
                y = y if between is None else builder.emit(between(y))
            result = builder.emit_output(relax.op.negative(y))
        builder.emit_func_output(result)
    values = np.arange(8, dtype="float32")
    (found,) = tvm_rammer.build(builder.get(), policy="sequential").create()(values)
    np.testing.assert_array_equal(found.numpy(), -values)
