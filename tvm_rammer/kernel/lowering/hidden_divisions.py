"""Compiler passes around FlattenBuffer, whose simplification of indices gets some divisions wrong.

Of ``(v % 30 + 6) // 10`` TVM makes something of ``(v + 6) % 30``, which is something else, and so
it does wherever a constant is added to a remainder or a quotient and the sum is divided again. Such
a division is a call that nobody can look into while indices are simplified.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, StringImm

from tvm_rammer.kernel.lowering.with_bodies import with_bodies

_DIVISIONS = {"rammer_floordiv": tirx.FloorDiv, "rammer_floormod": tirx.FloorMod}
_NAMES = {kind: name for name, kind in _DIVISIONS.items()}
_CALL = tirx.call_pure_extern("int32", "name").op


@tvm.transform.module_pass(opt_level=0, name="HideDivisions")
class HideDivisions:
    """Make calls of divisions whose dividends mix constants with quotients or remainders."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, _hidden)


@tvm.transform.module_pass(opt_level=0, name="ShowDivisions")
class ShowDivisions:
    """Make divisions of those calls again."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, _shown)


def _hidden(body: Any) -> Any:
    found: list[bool] = []
    tvm_ffi.structural_walk(body, (tuple(_NAMES), lambda node: found.append(_is_mixed(node))))
    return tvm_ffi.structural_map(body, (tuple(_NAMES), _hide)) if any(found) else body


def _hide(division: Any) -> Any:
    if not _is_mixed(division):
        return division
    name = _NAMES[type(division)]
    return tirx.call_pure_extern(division.ty, name, division.a, division.b)


def _shown(body: Any) -> Any:
    found: list[bool] = []
    tvm_ffi.structural_walk(body, (Call, lambda call: found.append(_is_hidden(call))))
    return tvm_ffi.structural_map(body, (Call, _show)) if any(found) else body


def _show(call: Any) -> Any:
    return _DIVISIONS[call.args[0].value](*call.args[1:]) if _is_hidden(call) else call


def _is_hidden(value: Any) -> bool:
    if not isinstance(value, Call) or not _CALL.same_as(value.op):
        return False
    name = value.args[0]
    return isinstance(name, StringImm) and name.value in _DIVISIONS


def _is_mixed(division: Any) -> bool:
    """Whether constants are added to a quotient or a remainder, and the sum is divided.

    They may come out of a quotient: ``(w + 48) // 5`` is ``(w + 3) // 5 + 9``.
    """
    terms = _terms(division.a)
    divided = [term for term in terms if isinstance(term, tuple(_NAMES)) or _is_hidden(term)]
    return bool(divided) and len(terms) > 1 and any(map(_holds_constant, terms))


def _holds_constant(term: Any) -> bool:
    if isinstance(term, tirx.FloorDiv | tirx.FloorMod):
        return any(map(_holds_constant, _terms(term.a)))
    return isinstance(term, tirx.IntImm) or _is_hidden(term)


def _terms(expression: Any) -> list[Any]:
    """The terms of a sum, without their factors."""
    if isinstance(expression, tirx.Add | tirx.Sub):
        return [*_terms(expression.a), *_terms(expression.b)]
    if isinstance(expression, tirx.Mul) and isinstance(expression.b, tirx.IntImm):
        return _terms(expression.a)
    return [expression]
