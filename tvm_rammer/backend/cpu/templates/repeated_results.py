"""Stores of a register tile's sums where the result repeats each of them many times.

A broadcast behind a product repeats every sum along axes that the sum does not have. Unrolled, as a
tile is, such stores become as many statements as there are repeats. Loops over them need the sums
in memory: registers have no places that vary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.backend.cpu.templates.columns import is_contiguous
from tvm_rammer.backend.cpu.templates.reduction_loops import Values
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.kernel.contraction import Axis, Contraction
from tvm_rammer.kernel.loops import for_each, number, sequence

#: So many stores of a sum are a statement each.
_FEW_REPEATS = 4


def repeats_much(contraction: Contraction) -> bool:
    """Whether the stores of a sum must be loops."""
    return prod(axis.extent for axis in contraction.repeated) > _FEW_REPEATS


def unrolled_stores(contraction: Contraction, total: Any, values: Values) -> Any:
    """The stores of one sum, a statement each; ``values`` are the places on the spatial axes."""

    def store(places: Values) -> Any:
        return contraction.epilogue(places, total)

    return _nest(contraction.repeated, values, store, ForKind.UNROLLED)


def looped_stores(
    contraction: Contraction,
    tile: RegisterTile,
    rows: int,
    total: Callable[[Any, Any, Any], Any],
    places: Callable[[Any, Any, Any], Values],
) -> Any:
    """The stores of all sums of a tile, as loops.

    Vectors run along the repeated axis whose neighbours are neighbours in the result; if there is
    none, along those of the tile.

    Parameters
    ----------
    contraction : Contraction
    tile : RegisterTile
    rows : int
        Of this tile: the last one may have fewer than others.
    total, places : callable
        From the numbers of a row, a vector and a lane to the sum, which lies in memory, and to the
        places on the spatial axes.
    """
    store = contraction.store
    result = tirx.BufferLoad(store.buffer, list(store.indices))
    contiguous = [axis for axis in contraction.repeated if is_contiguous(axis, result)]
    others = [axis for axis in contraction.repeated if axis not in contiguous]

    def stores(row: Any, vector: Any) -> Any:
        def write(lane: Any, repeats: Values) -> Any:
            values = {**places(row, vector, lane), **repeats}
            return contraction.epilogue(values, total(row, vector, lane))

        def across(repeats: Values) -> Any:
            return for_each(
                "lane", tile.lanes, lambda lane: write(lane, repeats), ForKind.VECTORIZED
            )

        def along(lane: Any, repeats: Values) -> Any:
            (axis,) = contiguous
            return _vectors(axis, tile.lanes, lambda at: write(lane, {**repeats, axis.var: at}))

        def of_lane(lane: Any) -> Any:
            return _nest(others, {}, lambda repeats: along(lane, repeats))

        return for_each("lane", tile.lanes, of_lane) if contiguous else _nest(others, {}, across)

    return for_each(
        "row", rows, lambda row: for_each("vector", tile.vectors, lambda v: stores(row, v))
    )


def _nest(
    axes: Sequence[Axis],
    values: Values,
    body: Callable[[Values], Any],
    kind: ForKind = ForKind.SERIAL,
) -> Any:
    """Loops over axes around a statement that is given all places."""
    if not axes:
        return body(values)
    axis, *rest = axes

    def step(at: Any) -> Any:
        return _nest(rest, {**values, axis.var: at}, body, kind)

    return for_each("repeat", axis.extent, step, kind)


def _vectors(axis: Axis, lanes: int, store: Callable[[Any], Any]) -> Any:
    """Stores along an axis: as many vectors as there are, and a loop over the rest."""
    vectors, rest = divmod(axis.extent, lanes)

    def vector(place: Any) -> Any:
        return for_each("lane", lanes, lambda lane: store(place * lanes + lane), ForKind.VECTORIZED)

    parts = [for_each("repeat", vectors, vector)] if vectors else []
    parts += [for_each("rest", rest, lambda place: store(number(vectors * lanes) + place))] * bool(
        rest
    )
    return sequence(parts)
