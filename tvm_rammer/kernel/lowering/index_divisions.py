"""Compiler passes around FlattenBuffer, whose simplification of indices gets some divisions wrong.

It rounds to the wrong side what falls. Where an axis is reversed, a place in it is ``last - i``,
and of ``(last - i) // 3`` it makes ``last // 3 + i // -3``, which is something else. Such a
division is written by what grows.

Of ``(v % 30 + 6) // 10`` it makes something of ``(v + 6) % 30``, and so it does wherever a constant
is added to a remainder or a quotient and the sum is divided again. Such a division is a call that
nobody can look into while indices are simplified.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, StringImm

from tvm_rammer.kernel.lowering.with_bodies import with_bodies

_DIVISIONS = {"rammer_floordiv": tirx.FloorDiv, "rammer_floormod": tirx.FloorMod}
_NAMES = {kind: name for name, kind in _DIVISIONS.items()}
_CALL = tirx.call_pure_extern("int32", "name").op


@tvm.transform.module_pass(opt_level=0, name="PositiveDivision")
class PositiveDivision:
    """Write a floor of a quotient, and its remainder, by what grows where the dividend falls."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, lambda body: _with_others(body, tuple(_NAMES), _falls, _positive))


@tvm.transform.module_pass(opt_level=0, name="HideDivisions")
class HideDivisions:
    """Make calls of divisions whose dividends mix constants with quotients or remainders."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, lambda body: _with_others(body, tuple(_NAMES), _is_mixed, _hide))


@tvm.transform.module_pass(opt_level=0, name="ShowDivisions")
class ShowDivisions:
    """Make divisions of those calls again."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, lambda body: _with_others(body, Call, _is_hidden, _show))


def _with_others(body: Any, kinds: Any, wanted: Any, change: Any) -> Any:
    """A body in which some expressions are others; the very same if none is wanted."""
    found: list[bool] = []
    tvm_ffi.structural_walk(body, (kinds, lambda node: found.append(wanted(node))))
    rewrite = (kinds, lambda node: change(node) if wanted(node) else node)
    return tvm_ffi.structural_map(body, rewrite) if any(found) else body


def _positive(division: Any) -> Any:
    """By ``-x // d = -((x + d - 1) // d)``, and what that makes of the remainder."""
    divisor = division.b
    most = divisor - 1
    grown = sym.Analyzer().simplify(most - division.a)
    if isinstance(division, tirx.FloorDiv):
        return tirx.const(0, division.ty) - tirx.FloorDiv(grown, divisor)
    return most - tirx.FloorMod(grown, divisor)


def _hide(division: Any) -> Any:
    name = _NAMES[type(division)]
    return tirx.call_pure_extern(division.ty, name, division.a, division.b)


def _show(call: Any) -> Any:
    return _DIVISIONS[call.args[0].value](*call.args[1:])


def _falls(division: Any) -> bool:
    """Whether each term of the dividend but a constant is taken away."""
    if not (isinstance(division.b, tirx.IntImm) and int(division.b) > 0):
        return False
    terms = _terms(division.a)
    return {sign for sign, term in terms if not isinstance(term, tirx.IntImm)} == {-1}


def _is_hidden(value: Any) -> bool:
    if not isinstance(value, Call) or not _CALL.same_as(value.op):
        return False
    name = value.args[0]
    return isinstance(name, StringImm) and name.value in _DIVISIONS


def _is_mixed(division: Any) -> bool:
    """Whether constants are added to a quotient or a remainder, and the sum is divided.

    They may come out of a quotient: ``(w + 48) // 5`` is ``(w + 3) // 5 + 9``.
    """
    terms = [term for _, term in _terms(division.a)]
    divided = [term for term in terms if isinstance(term, tuple(_NAMES)) or _is_hidden(term)]
    return bool(divided) and len(terms) > 1 and any(map(_holds_constant, terms))


def _holds_constant(term: Any) -> bool:
    if isinstance(term, tirx.FloorDiv | tirx.FloorMod):
        return any(_holds_constant(inner) for _, inner in _terms(term.a))
    return isinstance(term, tirx.IntImm) or _is_hidden(term)


def _terms(expression: Any, sign: int = 1) -> list[tuple[int, Any]]:
    """The terms of a sum, without their factors, and their signs."""
    if isinstance(expression, tirx.Add | tirx.Sub):
        other = -sign if isinstance(expression, tirx.Sub) else sign
        return [*_terms(expression.a, sign), *_terms(expression.b, other)]
    if isinstance(expression, tirx.Mul) and isinstance(expression.b, tirx.IntImm):
        return _terms(expression.a, sign if int(expression.b) > 0 else -sign)
    return [(sign, expression)]
