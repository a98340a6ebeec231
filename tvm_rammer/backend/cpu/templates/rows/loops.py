"""Loops over a length that need not be a multiple of the vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.nodes import statements

#: What a loop runs, given its index.
Body = Callable[[Any], Any]

SERIAL = tirx.ForKind.SERIAL
UNROLLED = tirx.ForKind.UNROLLED
_VECTORIZED = tirx.ForKind.VECTORIZED


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


def sequence(several: Sequence[Any]) -> Any:
    """Statements as one."""
    flat = [inner for each in several for inner in statements(each)]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def loop(extent: int, dtype: str, body: Body, kind: Any = SERIAL, name: str = "i") -> Any:
    """Run a body ``extent`` times."""
    if extent == 1:
        return body(tirx.const(0, dtype))
    var = tirx.Var(name, dtype)
    return tirx.For(var, tirx.const(0, dtype), tirx.const(extent, dtype), kind, body(var))


def grid(extents: Sequence[int], dtype: str, body: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Serial loops, outermost first."""
    if not extents:
        return body(())
    return loop(extents[0], dtype, lambda i: grid(extents[1:], dtype, lambda j: body((i, *j))))


def lanes_of(count: int, dtype: str, body: Body) -> Any:
    """A vectorised loop."""
    return loop(count, dtype, body, _VECTORIZED, "lane")


def sweep(parts: Sequence[VectorRun], dtype: str, body: Body, kind: Any = SERIAL) -> Any:
    """Run a body for every index in some pieces, vector by vector."""

    def vectors(piece: VectorRun) -> Any:
        def vector(number: Any) -> Any:
            first = number * piece.lanes + piece.start
            return lanes_of(piece.lanes, dtype, lambda lane: body(first + lane))

        return loop(piece.count, dtype, vector, kind, "vector")

    return sequence([vectors(piece) for piece in parts])


def unravel(index: Any, extents: Sequence[int]) -> tuple[Any, ...]:
    """The indices along several axes that one index of their fused loop stands for."""
    found: list[Any] = []
    for extent in reversed(extents[1:]):
        found.insert(0, index % extent)
        index = index // extent
    return (index, *found) if extents else ()
