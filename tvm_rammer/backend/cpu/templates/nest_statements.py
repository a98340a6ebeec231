"""Loops and index arithmetic that the nests of contractions are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.kernel.loops import number


def loop(
    name: str,
    extent: int,
    body: Callable[[Any], Any],
    kind: ForKind = ForKind.SERIAL,
    marks: Mapping[str, int] | None = None,
) -> Any:
    """A loop of constant extent; one of a single iteration only if it is a loop of tasks."""
    if extent == 1 and kind != ForKind.PARALLEL:
        return body(number(0))
    var = tirx.Var(name, "int64")
    bounds = (number(0), number(extent))
    return tirx.For(var, *bounds, kind, body(var), annotations=dict(marks or {}))


def unrolled(
    rows: int,
    vectors: int,
    lanes: int,
    body: Callable[[Any, Any, Any], Any],
    marks: Mapping[str, int] | None = None,
) -> Any:
    """``body(row, vector, lane)`` for all of a register tile, without a loop that is left.

    What is marked are the loops over lanes.
    """
    return loop(
        "row",
        rows,
        lambda row: loop(
            "vector",
            vectors,
            lambda vector: loop(
                "lane", lanes, lambda lane: body(row, vector, lane), ForKind.VECTORIZED, marks
            ),
            ForKind.UNROLLED,
        ),
        ForKind.UNROLLED,
    )


def digits(value: Any, counts: Sequence[int]) -> list[Any]:
    """A number in the mixed base of some counts, the last digit changing fastest."""
    found = []
    for count in reversed(counts[1:]):
        found.append(value % count if count > 1 else number(0))
        value = value // count
    return [value, *found[::-1]]
