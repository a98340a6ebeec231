"""A compiler pass for reductions of as many elements as the run finds: their start stands alone.

TVM starts a result where its first element is added. Of no elements there is no first one, and the
result would be whatever lies in memory.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvm_rammer.kernel.blocks import is_reduced, is_scheduled


@tvm.transform.module_pass(opt_level=0, name="StartReductions")
class StartReductions:
    """Give each of these reductions a loop nest of its own that starts its results."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite PrimFuncs that nobody has scheduled; a module without any stays as it is."""
        started = {
            symbol: _started(func, blocks)
            for symbol, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc)
            and not is_scheduled(func)
            and (blocks := _blocks_of_any_size(func))
        }
        if not started:
            return mod
        return tvm.IRModule(dict(mod.functions_items()) | started, attrs=mod.attrs)


def _blocks_of_any_size(func: tirx.PrimFunc) -> list[str]:
    """The blocks of a PrimFunc that reduce along an axis whose size is not known."""
    found: list[str] = []

    def look(block: s_tir.SBlock) -> None:
        extents = [axis.dom.extent for axis in block.iter_vars if is_reduced(axis)]
        if block.init is not None and not all(isinstance(n, tirx.IntImm) for n in extents):
            found.append(block.name_hint)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, look))
    return found


def _started(func: tirx.PrimFunc, blocks: list[str]) -> tirx.PrimFunc:
    sch = s_tir.Schedule(func)
    for name in blocks:
        block = sch.get_sblock(name)
        sch.decompose_reduction(block, sch.get_loops(block)[0])
    return sch.mod["main"]
