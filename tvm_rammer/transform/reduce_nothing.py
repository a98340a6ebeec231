"""A compiler pass that makes of a reduction of no elements what it starts from.

TVM writes the start of a sum or a maximum where it reads the first element. Of nothing there is no
first element, and what comes out is what was in memory before.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvm_rammer.kernel.blocks import is_reduced
from tvm_rammer.kernel.starts import start_of


@tvm.transform.module_pass(opt_level=0, name="ReduceNothing")
class ReduceNothing:
    """Let blocks that reduce along an axis without elements write their start."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite the PrimFuncs that read something without elements."""
        changed = {
            symbol: _with_starts(func)
            for symbol, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc) and any(map(_is_empty, func.params))
        }
        if not changed:
            return mod
        return tvm.IRModule({**dict(mod.functions_items()), **changed}, attrs=mod.attrs)


def _is_empty(param: Any) -> bool:
    return any(map(_is_zero, getattr(param.ty, "shape", ())))


def _is_zero(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and extent.value == 0


def _with_starts(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function whose empty reductions are blocks, and loops, without the reduced axes."""
    removed: list[Any] = []

    def started(realize: s_tir.SBlockRealize) -> Any:
        block = realize.block
        if block.init is None or not any(_is_zero(axis.dom.extent) for axis in _reduced(block)):
            return realize
        kept = [k for k, axis in enumerate(block.iter_vars) if axis not in _reduced(block)]
        removed.extend(v for k, v in enumerate(realize.iter_values) if k not in kept)
        axes = [block.iter_vars[k] for k in kept]
        start = s_tir.SBlock(axes, [], block.writes, block.name_hint, start_of(block))
        return s_tir.SBlockRealize([realize.iter_values[k] for k in kept], True, start)

    def without(loop: tirx.For) -> Any:
        return loop.body if any(loop.loop_var.same_as(var) for var in removed) else loop

    body = tvm_ffi.structural_map(func.body, (s_tir.SBlockRealize, started))
    return func.with_body(tvm_ffi.structural_map(body, (tirx.For, without)))


def _reduced(block: s_tir.SBlock) -> list[Any]:
    return [axis for axis in block.iter_vars if is_reduced(axis)]
