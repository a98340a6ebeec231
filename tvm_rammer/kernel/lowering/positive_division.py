"""A compiler pass that divides what grows: TVM rounds to the wrong side what falls.

Where an axis is reversed, a place in it is ``last - i``. Of ``(last - i) // 3`` TVM's
simplification of indices, in FlattenBuffer, makes ``last // 3 + i // -3``, which is something else.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx

from tvm_rammer.kernel.lowering.with_bodies import with_bodies

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


@tvm.transform.module_pass(opt_level=0, name="PositiveDivision")
class PositiveDivision:
    """Write a floor of a quotient, and its remainder, by what grows where the dividend falls."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, _rewritten)


def _rewritten(body: Any) -> Any:
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (_DIVISIONS, lambda node: found.append(_falls(node))))
    return tvm_ffi.structural_map(body, (_DIVISIONS, _positive)) if any(found) else body


def _positive(division: Any) -> Any:
    """By ``-x // d = -((x + d - 1) // d)``, and what that makes of the remainder."""
    if not _falls(division):
        return division
    divisor = division.b
    most = divisor - 1
    grown = sym.Analyzer().simplify(most - division.a)
    if isinstance(division, tirx.FloorDiv):
        return tirx.const(0, division.ty) - tirx.FloorDiv(grown, divisor)
    return most - tirx.FloorMod(grown, divisor)


def _falls(division: Any) -> bool:
    """Whether each term of the dividend but a constant is taken away."""
    if not (isinstance(division.b, tirx.IntImm) and int(division.b) > 0):
        return False
    signs = set(_signs(division.a, 1))
    return signs == {-1}


def _signs(expression: Any, sign: int) -> list[int]:
    """The signs of the terms of a sum that are no constants."""
    if isinstance(expression, tirx.IntImm):
        return []
    if isinstance(expression, tirx.Add | tirx.Sub):
        other = -sign if isinstance(expression, tirx.Sub) else sign
        return [*_signs(expression.a, sign), *_signs(expression.b, other)]
    if isinstance(expression, tirx.Mul) and isinstance(expression.b, tirx.IntImm):
        return _signs(expression.a, sign if int(expression.b) > 0 else -sign)
    return [sign]
