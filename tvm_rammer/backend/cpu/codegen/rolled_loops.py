"""A compiler pass that gives LLVM the mark by which it keeps a loop a loop.

LLVM unrolls loops with few steps, and then optimises every step by itself: most of the time that it
takes for a body of several such loops, and of the code. It leaves a loop alone in which something
must not be duplicated; here that is an empty piece of assembly, which is no instruction.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.ir import StringImm

from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.kernel.loops import ROLLED
from tvm_rammer.kernel.nodes import collect


@tvm.transform.module_pass(opt_level=0, name="LinkRolledLoops")
class LinkRolledLoops:
    """Import the mark's text once where :func:`~tvm_rammer.kernel.loops.rolled` left marks."""

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
