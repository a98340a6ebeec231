"""A compiler pass that compares booleans as the bits they are.

TVM 0.27 generates instructions for floating-point numbers where booleans are compared, added or
multiplied, which LLVM refuses.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.kernel.lowering.with_bodies import with_bodies

_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
#: What arithmetic means where there is only 0 and 1, as in numpy.
_ARITHMETIC = {tirx.Add: tirx.Or, tirx.Mul: tirx.And, tirx.Max: tirx.Or, tirx.Min: tirx.And}


@tvm.transform.module_pass(opt_level=0, name="CompareBooleans")
class CompareBooleans:
    """Widen booleans before a comparison, and replace their arithmetic by logic."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        rewrites = ((_COMPARISONS, _widened), (tuple(_ARITHMETIC), _as_logic))
        return with_bodies(mod, lambda body: tvm_ffi.structural_map(body, rewrites))


def _widened(comparison: Any) -> Any:
    if not _is_boolean(comparison.a):
        return comparison
    wide = str(comparison.a.ty).replace("bool", "uint8")
    operands = (tirx.Cast(wide, operand) for operand in (comparison.a, comparison.b))
    return type(comparison)(*operands)


def _as_logic(arithmetic: Any) -> Any:
    if not _is_boolean(arithmetic):
        return arithmetic
    return _ARITHMETIC[type(arithmetic)](arithmetic.a, arithmetic.b)


def _is_boolean(expression: Any) -> bool:
    return str(expression.ty).startswith("bool")
