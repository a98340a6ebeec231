"""Compiler passes over loops that templates marked: those that may copy, those that stay loops."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import StringImm

from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.kernel.loops import ROLLED
from tvm_rammer.kernel.lowering.with_bodies import with_bodies, with_text
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.replacement import UNLESS_SAME

_APART = "rammer_apart"


@tvm.transform.module_pass(opt_level=0, name="SkipNeedlessCopies")
class SkipNeedlessCopies:
    """Let marked loops copy only where both ends are different memory: compare addresses."""

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


@tvm.transform.module_pass(opt_level=0, name="LinkRolledLoops")
class LinkRolledLoops:
    """Give LLVM the mark by which it keeps a loop a loop, once, where there are such marks.

    LLVM unrolls loops with few steps, and then optimises every step by itself: most of the time
    that it takes for a body of several such loops, and of the code. It leaves a loop alone in which
    something must not be duplicated; here that is an empty piece of assembly, which is no
    instruction.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Add the text to the first function with a mark: it is linked into the whole module."""
        for symbol, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc) and _is_marked(func):
                text = llvm_ir("rolled", rolled=ROLLED)
                body = tirx.AttrStmt(0, "pragma_import_llvm", text, func.body)
                mod[symbol] = func.with_body(body)
                break
        return mod


def _is_marked(func: tirx.PrimFunc) -> bool:
    return ROLLED in [name.value for name in collect(func.body, StringImm)]
