"""Loops over a length that need not be a multiple of the vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.loops import for_each, sequence

#: What a loop runs, given its index.
Body = Callable[[Any], Any]

SERIAL = tirx.ForKind.SERIAL
UNROLLED = tirx.ForKind.UNROLLED


@dataclass(frozen=True)
class VectorRun:
    """``count`` vectors of ``lanes`` from ``start`` on."""

    start: int
    count: int
    lanes: int


def pieces(length: int, lanes: int) -> tuple[VectorRun, ...]:
    """Cut a length into full vectors, one half and one quarter at most, and single elements."""
    found: list[VectorRun] = []
    start = 0
    for width in dict.fromkeys((lanes, lanes // 2, lanes // 4, 1)):
        count = (length - start) // width if width else 0
        if count:
            found.append(VectorRun(start, count, width))
            start += count * width
    return tuple(found)


def grid(extents: Sequence[int], dtype: str, body: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Serial loops, outermost first."""
    if not extents:
        return body(())
    return for_each(
        "i", extents[0], lambda i: grid(extents[1:], dtype, lambda j: body((i, *j))), dtype=dtype
    )


def lanes_of(count: int, dtype: str, body: Body) -> Any:
    """A vectorised loop."""
    return for_each("lane", count, body, tirx.ForKind.VECTORIZED, dtype)


def folded(target: Any, first: Any, width: int, combine: Any, dtype: str) -> list[Any]:
    """Statements that bring so many elements of a buffer together in the ``first``, by halves."""

    def half(width: int) -> Any:
        def fold(lane: Any) -> Any:
            value = combine(target[lane + first], target[lane + (first + width)])
            return tirx.BufferStore(target, value, [lane + first])

        return lanes_of(width, dtype, fold)

    return [half(width >> step) for step in range(1, width.bit_length())]


def sweep(
    parts: Sequence[VectorRun], dtype: str, body: Callable[[Any, Any], Any], kind: Any = SERIAL
) -> Any:
    """``body(index, lane)`` for every index in some pieces, vector by vector."""

    def vectors(piece: VectorRun) -> Any:
        def vector(number: Any) -> Any:
            first = number * piece.lanes + piece.start
            return lanes_of(piece.lanes, dtype, lambda lane: body(first + lane, lane))

        return for_each("vector", piece.count, vector, kind, dtype)

    return sequence([vectors(piece) for piece in parts])
