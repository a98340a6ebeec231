"""The lowering of PrimFuncs that run as rTask bodies, on whatever LLVM generates code for.

One pass of TVM's it leaves out: rewriting storage would hoist the local buffers of an rTask body
out of its device attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

from tvm_rammer.kernel.lowering.compare_booleans import CompareBooleans
from tvm_rammer.kernel.lowering.index_divisions import (
    HideDivisions,
    PositiveDivision,
    ShowDivisions,
)
from tvm_rammer.kernel.lowering.keep_nan import KeepNaN
from tvm_rammer.kernel.lowering.safe_division import SafeDivision

_FLATTEN = "tirx.FlattenBuffer"


def _all_are_needed(mod: tvm.IRModule) -> Sequence[str]:
    return ()


def lowering(
    name: str,
    before: Sequence[Any] = (),
    after: Sequence[Any] = (),
    needless: Callable[[tvm.IRModule], Sequence[str]] = _all_are_needed,
) -> str:
    """The name of a lowering, registered: what ``tvm.tirx.build`` takes as ``pipeline``.

    Parameters
    ----------
    name : str
        A back end's own; the passes of the first call count.
    before, after : sequence of callables
        Make passes that a back end adds before and after TVM's.
    needless : callable
        Names passes of TVM's that a module has no need of.
    """
    from tvm.tirx import compilation_pipeline

    if name not in compilation_pipeline.PIPELINE_MAP:
        tirx.register_tir_pipeline(name, lambda: _stages(before, after, needless))
    return name


def _stages(before: Sequence[Any], after: Sequence[Any], needless: Any) -> Any:
    from tvm.s_tir.pipeline import default_s_tir_pipeline

    stock, finalize_host, finalize_device = default_s_tir_pipeline()
    first = [SafeDivision(), PositiveDivision(), *(make() for make in before)]
    last = [CompareBooleans(), KeepNaN(), *(make() for make in after)]
    flat = tvm.transform.Sequential([*first, stock, *last])
    others = tvm.transform.Sequential([*first, HideDivisions(), stock, ShowDivisions(), *last])

    @tvm.transform.module_pass(opt_level=0, name="RammerLowering")
    def lower(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        config = dict(tvm.transform.PassContext.current().config)
        config["tirx.disable_storage_rewrite"] = True
        left_out = list(needless(mod))
        passes = flat if _FLATTEN in left_out else others
        with tvm.transform.PassContext(config=config, disabled_pass=left_out):
            return passes(mod)

    return lower, finalize_host, finalize_device
