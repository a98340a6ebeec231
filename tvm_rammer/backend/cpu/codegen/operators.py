"""PrimFuncs that are called one by one, compiled as the bodies of a plan are."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import tirx

from tvm_rammer.backend.cpu.codegen.lowering import build_side_by_side

#: Functions in a module: modules are compiled side by side, and each takes a while by itself.
_FUNCTIONS = 16


def build_operators(
    functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
) -> list[tvm.runtime.Module]:
    """Compile PrimFuncs for calls from Relax, which pass their tensors in order.

    Parameters
    ----------
    functions : mapping of str to PrimFunc
        By the symbol under which a module is to export them.
    target : Target
        Of kind ``llvm``.
    """
    symbols = list(functions)
    parts = [symbols[k : k + _FUNCTIONS] for k in range(0, len(symbols), _FUNCTIONS)]
    modules = [tvm.IRModule({name: _exported(name, functions[name]) for name in p}) for p in parts]
    return build_side_by_side(modules, target)


def _exported(symbol: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
    return func.with_attrs({"global_symbol": symbol, "tirx.is_scheduled": True, "s_tir": True})
