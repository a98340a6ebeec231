"""A compiler pass that lets integers be divided by data: processors stop the process at zero.

They do so, too, where the quotient does not fit, which is the least number divided by -1. The
results are numpy's: 0 for a division by zero and its remainder, and the least number itself.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.lowering.with_bodies import with_bodies

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


@tvm.transform.module_pass(opt_level=0, name="SafeDivision")
class SafeDivision:
    """Divide by 1 where a divisor is data and may stop the process."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, _rewritten)


def _rewritten(body: Any) -> Any:
    divisors: list[Any] = []
    tvm_ffi.structural_walk(body, (_DIVISIONS, lambda node: divisors.append(node.b)))
    if all(isinstance(divisor, tirx.IntImm) for divisor in divisors):
        return body
    data: set[Any] = set()

    def bind(binding: Any) -> None:
        if _is_data(binding.value, data):
            data.add(binding.var)

    def safe(division: Any) -> Any:
        if isinstance(division.b, tirx.IntImm) or not _is_data(division.b, data):
            return division
        return _safe(division) if str(division.ty).startswith(("int", "uint")) else division

    tvm_ffi.structural_walk(body, (tirx.Bind, bind))
    return tvm_ffi.structural_map(body, (_DIVISIONS, safe))


def _safe(division: Any) -> Any:
    divided, divisor, dtype = division.a, division.b, str(division.ty)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    by_zero = divisor == zero
    unsafe = by_zero
    if dtype.startswith("int"):
        # The least number is not asked for: simplification believes that no data are that small.
        by_minus_one = divisor == tirx.const(-1, dtype)
        unsafe = tirx.Or(by_zero, by_minus_one)
        divided = tirx.Select(by_minus_one, zero - divided, divided)
    quotient = type(division)(divided, tirx.Select(unsafe, one, divisor))
    return tirx.Select(by_zero, zero, quotient)


def _is_data(expression: Any, data: set[Any]) -> bool:
    """Whether an expression depends on what is loaded, perhaps into one of some variables.

    Sizes and places are never zero.
    """
    return bool(loads(expression)) or not data.isdisjoint(variables(expression))
