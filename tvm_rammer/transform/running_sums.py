"""Running sums and products as sums of their own, as independent as the results of a product.

On a GPU nothing is gained by adding to the last result: all others would wait for it. Of many terms
``sqrt(n)`` lie in a part; a result is what the parts before its own come to and what lies before it
in its own: ``2 * n ** 1.5`` terms in all (Blelloch, "Prefix sums and their applications", 1990,
section 1.4, whose processors are parts here).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any

from tvm import te, tirx, topi

#: Terms up to which a result adds up all that is before it.
_FEW_TERMS = 64
_PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype))


def running_sums(x: te.Tensor, axis: int, exclusive: bool) -> te.Tensor:
    """The sum of what lies before each element along an axis, and of itself unless *exclusive*."""
    return _Prefixes(x, axis, exclusive, te.sum, topi.add, 0).written()


def running_products(x: te.Tensor, axis: int, exclusive: bool) -> te.Tensor:
    """The product of what lies before each element, and of itself unless *exclusive*."""
    return _Prefixes(x, axis, exclusive, _PRODUCT, topi.multiply, 1).written()


@dataclass(frozen=True)
class _Prefixes:
    """Of ``x`` along ``axis``; ``start`` is what no term comes to."""

    x: te.Tensor
    axis: int
    exclusive: bool
    combine: Callable[..., Any]
    add: Callable[..., te.Tensor]
    start: int

    @property
    def count(self) -> int:
        return int(self.x.shape[self.axis])

    def written(self) -> te.Tensor:
        if self.count <= _FEW_TERMS:
            return self._combined(self.x, self.count, self.count, self._is_before, lambda _, k: k)
        length = isqrt(self.count - 1) + 1
        parts = -(-self.count // length)
        totals = self._combined(
            *(self.x, parts, length),
            lambda part, k: part * length + k < self.count,
            lambda part, k: part * length + k,
        )
        earlier = self._combined(totals, parts, parts, lambda part, k: k < part, lambda _, k: k)
        inside = self._combined(
            *(self.x, self.count, length),
            lambda place, k: self._is_before(place, place // length * length + k),
            lambda place, k: place // length * length + k,
        )
        shape = inside.shape
        spread = te.compute(
            shape, lambda *at: earlier(*self._moved(at, at[self.axis] // length)), "earlier"
        )
        return self.add(inside, spread)

    def _combined(
        self,
        x: te.Tensor,
        results: int,
        terms: int,
        counts: Callable[[Any, Any], Any],
        place: Callable[[Any, Any], Any],
    ) -> te.Tensor:
        """Of the terms of each result those that count, at the places where they lie."""
        shape = self._moved(x.shape, results)
        k = te.reduce_axis((0, terms), "k")

        def element(*at: Any) -> Any:
            own = at[self.axis]
            value = x(*self._moved(at, place(own, k)))
            start = tirx.const(self.start, x.dtype)
            return self.combine(tirx.if_then_else(counts(own, k), value, start), axis=k)

        return te.compute(shape, element, "prefixes")

    def _moved(self, at: Any, place: Any) -> list[Any]:
        """An index, or a shape, with something else along the axis."""
        return [*at[: self.axis], place, *at[self.axis + 1 :]]

    def _is_before(self, place: Any, k: Any) -> Any:
        return k < place if self.exclusive else k <= place
