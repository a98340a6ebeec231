"""Questions that all lanes of a vector answer alike are asked once.

Where the terms of a convolution lie side by side, a vector of them has one place in the window: of
lanes ``4 x + v``, v from 0 to 3, ``(4 x + v) // 192`` is ``4 x // 192``, and
``(4 x + v) % 192`` is ``4 x % 192 + v``. TVM does not see that, takes the lanes for unlike, and
loads them one by one, each with its own divisions.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx

from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.lowering.with_bodies import with_bodies
from tvm_rammer.kernel.nodes import substitute

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


@tvm.transform.module_pass(opt_level=0, name="WholeVectors")
class WholeVectors:
    """Take lanes out of divisions and comparisons that they do not change, before vectors are."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, lambda body: tvm_ffi.structural_map(body, (tirx.For, _for_all)))


def _for_all(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED or loop.loop_var not in variables(loop.body):
        return loop
    lanes = _Lanes(loop.loop_var, int(loop.extent))
    kinds = ((tirx.FloorDiv, tirx.FloorMod), lanes.divided), (_COMPARISONS, lanes.compared)
    body = loop.body
    for each in kinds:
        body = tvm_ffi.structural_map(body, each)
    if body.same_as(loop.body):
        return loop
    bounds = (loop.loop_var, loop.min, loop.extent, loop.kind)
    return tirx.For(*bounds, body, annotations=loop.annotations, step=loop.step)


class _Lanes:
    """The lanes of a vector, 0 to ``count - 1``."""

    def __init__(self, lane: Any, count: int) -> None:
        self._lane, self._count, self._analyzer = lane, count, sym.Analyzer()

    def divided(self, division: Any) -> Any:
        """The quotient of all lanes, or a remainder in which they lie side by side."""
        first = self._first(division.a)
        if first is None or not self._is_multiple(division.b):
            return division
        found = type(division)(first, division.b)
        return found if isinstance(division, tirx.FloorDiv) else found + self._lane

    def compared(self, comparison: Any) -> Any:
        """What all lanes answer: the bound is where a vector begins."""
        less = isinstance(comparison, tirx.LT | tirx.GE)
        # a + v < b and a + v >= b are asked of a; b <= a + v and b > a + v too.
        moved, bound = (comparison.a, comparison.b) if less else (comparison.b, comparison.a)
        first = self._first(moved)
        if first is None or not self._is_multiple(bound):
            return comparison
        return type(comparison)(*((first, bound) if less else (bound, first)))

    def _first(self, value: Any) -> Any:
        """Of a value that grows by one from lane to lane, that of a vector's first lane."""
        if self._lane not in variables(value):
            return None
        zero = tirx.const(0, self._lane.ty)
        first = substitute(value, {self._lane: zero})
        grows = self._analyzer.can_prove_equal(value - first, self._lane)
        return first if grows and self._is_multiple(first) else None

    def _is_multiple(self, value: Any) -> bool:
        places = self._analyzer.modular_set(value)
        return int(places.coeff) % self._count == 0 and int(places.base) % self._count == 0
