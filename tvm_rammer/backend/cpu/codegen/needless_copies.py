"""A compiler pass that lets marked loops copy only where both ends are different memory."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.kernel.lowering.with_bodies import with_bodies, with_text
from tvm_rammer.kernel.replacement import UNLESS_SAME

_APART = "rammer_apart"


@tvm.transform.module_pass(opt_level=0, name="SkipNeedlessCopies")
class SkipNeedlessCopies:
    """Put a comparison of addresses before every marked loop."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        changed: list[Any] = []

        def change(loop: Any) -> Any:
            if UNLESS_SAME not in loop.annotations:
                return loop
            changed.append(loop)
            ends = (loop.body.buffer, loop.body.value.source)
            starts = (tirx.address_of(tirx.BufferLoad(end, [0])) for end in ends)
            return tirx.IfThenElse(tirx.call_pure_extern("bool", _APART, *starts), loop, None)

        made = with_bodies(mod, lambda body: tvm_ffi.structural_map(body, (tirx.For, change)))
        return with_text(made, llvm_ir("apart", apart=_APART) if changed else "")
