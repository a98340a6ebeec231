"""Products of transformed inputs and packed weights, summed up in a register tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.loops import buffer, loop, sequence, vector
from tvm_rammer.kernel.register_tile import RegisterTile


def register_products(
    tile: RegisterTile,
    rows: int,
    extents: Sequence[int],
    data: Callable[..., Any],
    weight: Callable[..., Any],
    keep: Callable[[int, Any, Any], Any],
    beside: Callable[..., list[Any]] = lambda *steps: [],
) -> Any:
    """Sums of products in which every sum is a vector of its own, so that it has a register.

    Parameters
    ----------
    tile : RegisterTile
    rows : int
        Rows that there are: at most those of the tile.
    extents : sequence of int
        The loops of the reduction, the outermost first.
    data : callable
        ``data(row, *steps)``: the factor of a row.
    weight : callable
        ``weight(column, *steps)``: the factor of a column.
    keep : callable
        ``keep(row, column, value)``: the statement that stores a sum.
    beside : callable
        ``beside(*steps)``: what else is done in a step, before its products.
    """
    sums = {
        (row, part): buffer("sum", (tile.lanes,))
        for row in range(rows)
        for part in range(tile.vectors)
    }

    def everywhere(make: Callable[[Any, int, Any, Any], Any]) -> list[Any]:
        def one(row: int, part: int, total: Any) -> Any:
            column = part * tile.lanes
            return vector(tile.lanes, lambda lane: make(total, row, column + lane, lane))

        return [one(*place, total) for place, total in sums.items()]

    def clear(total: Any, row: int, column: Any, lane: Any) -> Any:
        return tirx.BufferStore(total, tirx.const(0.0, "float32"), [lane])

    def store(total: Any, row: int, column: Any, lane: Any) -> Any:
        return keep(row, column, total[lane])

    def reduce(steps: tuple[Any, ...]) -> Any:
        if len(steps) < len(extents):
            name = f"step{len(steps)}"
            return loop(name, extents[len(steps)], lambda step: reduce((*steps, step)))

        def add(total: Any, row: int, column: Any, lane: Any) -> Any:
            product = data(row, *steps) * weight(column, *steps)
            return tirx.BufferStore(total, total[lane] + product, [lane])

        return sequence([*beside(*steps), *everywhere(add)])

    return tirx.SeqStmt(
        [
            *map(tirx.AllocBuffer, sums.values()),
            *everywhere(clear),
            reduce(()),
            *everywhere(store),
        ]
    )
