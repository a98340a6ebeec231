"""What is left out of the lowering of rTask bodies would not have changed this code."""

from __future__ import annotations

import pytest
import tvm
from stress.compiled_regions import source_of

from tvm_rammer.backend.cpu.codegen import lowering
from tvm_rammer.backend.cpu.codegen.llvm_text import support_functions
from tvm_rammer.backend.cpu.codegen.shards import lower_shard
from tvm_rammer.machine.target import architecture

#: FlattenBuffer declares buffers anew, which is code of its own without effect.
REDECLARING = ("s_tir.CompactBufferAllocation", "tirx.FlattenBuffer")


@pytest.mark.parametrize("name", ["squeezenet", "bert_base", "lstm_8x8x256"])
def test_passes_that_are_left_out_change_nothing(name, monkeypatch):
    """Kernels of convolutions, pools, products, rows and elements."""
    compiler = source_of(name).compiler
    bodies, target = compiler.kernels.bodies, compiler.target
    shard = lower_shard(0, bodies, list(bodies), support_functions(architecture(target)))

    def code() -> str:
        module = tvm.tirx.build(shard, target, pipeline=lowering.lowering_pipeline())
        return module.inspect_source("ll")

    found = code()
    assert found.count("\ndefine") > len(bodies) > 3
    monkeypatch.setattr(lowering, "_NEEDLESS", REDECLARING)
    assert found == code()
