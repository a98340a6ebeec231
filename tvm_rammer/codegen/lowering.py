"""The lowering of everything that this package compiles: TVM's own, with vector code for libm's.

It leaves out one pass of TVM's: rewriting storage would hoist the local buffers of an rTask body
out of its device attributes.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from tvm_rammer.codegen.vector_math_calls import LinkElementaryFunctions, NameElementaryFunctions

#: Name under which our lowering is known to ``tvm.tirx.build``.
_PIPELINE = "tvm_rammer"


def lowering_pipeline() -> str:
    """The name of our lowering, registered: what ``tvm.tirx.build`` takes as ``pipeline``."""
    from tvm.tirx import compilation_pipeline

    if _PIPELINE not in compilation_pipeline.PIPELINE_MAP:
        tirx.register_tir_pipeline(_PIPELINE, _lowering)
    return _PIPELINE


def _lowering() -> Any:
    from tvm.s_tir.pipeline import default_s_tir_pipeline

    stock, finalize_host, finalize_device = default_s_tir_pipeline()
    passes = tvm.transform.Sequential([NameElementaryFunctions(), stock, LinkElementaryFunctions()])

    @tvm.transform.module_pass(opt_level=0, name="RammerLowering")
    def lowering(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        config = dict(tvm.transform.PassContext.current().config)
        config["tirx.disable_storage_rewrite"] = True
        with tvm.transform.PassContext(config=config):
            return passes(mod)

    return lowering, finalize_host, finalize_device
