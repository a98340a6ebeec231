"""What passes over a module of PrimFuncs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx


def with_bodies(mod: tvm.IRModule, change: Callable[[Any], Any]) -> tvm.IRModule:
    """A module whose PrimFuncs have other bodies: ``change`` of those that they had."""
    functions = {
        symbol: func.with_body(change(func.body)) if isinstance(func, tirx.PrimFunc) else func
        for symbol, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def with_text(mod: tvm.IRModule, text: str) -> tvm.IRModule:
    """A module that imports LLVM IR, once: what one function imports is linked into all of it."""
    if text:
        symbol, func = next(
            (s, f) for s, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)
        )
        mod[symbol] = func.with_body(tirx.AttrStmt(0, "pragma_import_llvm", text, func.body))
    return mod
