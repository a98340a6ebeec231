"""The conditions of padding, taken out of the innermost loops.

Padded data are ``if_then_else(conditions, element, zero)``. A condition that does not depend on the
row of a tile decides about all of its multiply-adds at once: where it fails, they are left out. One
that does is tested for the first and the last row, which are enough as it is linear: mostly it
holds for all rows, and only otherwise does every row ask for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.blocks import is_choice, variables
from tvm_rammer.kernel.nodes import all_of, conjuncts, substitute

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_LINEAR = (tirx.Add, tirx.Sub, tirx.Mul, *_COMPARISONS)


@dataclass(frozen=True)
class Guarded:
    """``element`` where all ``guards`` hold, otherwise ``zero``."""

    guards: tuple[Any, ...]
    element: Any
    zero: Any

    def under(self, guards: Sequence[Any]) -> Any:
        """The value where only these guards may fail."""
        return (
            tirx.if_then_else(all_of(guards), self.element, self.zero) if guards else self.element
        )


def guarded(data: Any) -> Guarded:
    """Take an expression apart; its guards are linear comparisons, if it has any."""
    if isinstance(data, tirx.Cast) and is_choice(data.value):
        inner, dtype = guarded(data.value), data.ty
        if inner.guards:
            return Guarded(inner.guards, inner.element.astype(dtype), inner.zero.astype(dtype))
    if is_choice(data):
        condition, element, zero = data.args
        guards = conjuncts(condition)
        if all(isinstance(guard, _COMPARISONS) and _is_linear(guard) for guard in guards):
            return Guarded(tuple(guards), element, zero)
    return Guarded((), data, None)


def mentions(guard: Any, some: Iterable[Any]) -> bool:
    """Whether a guard depends on one of some variables."""
    return bool(variables([guard]) & set(some))


def everywhere(guards: Sequence[Any], ranges: Mapping[Any, tuple[Any, Any]]) -> Any:
    """Whether guards hold for all values of some variables, each from a first to a last one."""
    corners = []
    for guard in guards:
        used = [var for var in ranges if var in variables([guard])]
        for ends in product(*(ranges[var] for var in used)):
            corners.append(substitute(guard, dict(zip(used, ends, strict=True))))
    return all_of(corners)


def _is_linear(expression: Any) -> bool:
    if isinstance(expression, tirx.Var | tirx.IntImm):
        return True
    return isinstance(expression, _LINEAR) and all(map(_is_linear, (expression.a, expression.b)))
