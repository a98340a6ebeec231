"""Products of transformed inputs and packed weights, summed up in a register tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile, overlapping_lanes, spills
from tvm_rammer.kernel.loops import buffer, loop, sequence, unrolled, vector
from tvm_rammer.machine import VDevice

#: Of a register tile.
_MOST_ROWS, _MOST_VECTORS = 14, 4
#: Of one vector where registers are few: with 11 rows products take three times as long.
_MOST_ROWS_OF_PRODUCTS = 6


def register_tiles(tiles: int, channels: int, vdevice: VDevice) -> Iterator[RegisterTile]:
    """The register tiles that fit: rows of so many tiles of the image, vectors of channels.

    Where vectors do not divide the channels, the last ones of a tile overlap.
    """
    lanes = overlapping_lanes(channels, vdevice) or 1
    divided = channels % lanes == 0
    for vectors in range(1, _MOST_VECTORS + 1):
        if channels % (vectors * lanes) == 0 if divided else 1 < vectors <= channels // lanes + 1:
            most = min(_MOST_ROWS, (vdevice.vector_registers - 2 - vectors) // vectors)
            for rows in range(1, min(tiles, most) + 1):
                tile = RegisterTile(rows, vectors, lanes)
                if not spills(tile, vdevice, _MOST_ROWS_OF_PRODUCTS):
                    yield tile


def register_products(
    tile: RegisterTile,
    rows: int,
    extents: Sequence[int],
    data: Callable[..., Any],
    weight: Callable[..., Any],
    keep: Callable[[Any, Any, Any], Any],
    beside: Callable[..., list[Any]] = lambda *steps: [],
) -> Any:
    """Sums of products, each a vector that has a register.

    Those of a column of vectors are a buffer: one for all could be too large to become registers.

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
    sums = [buffer("sums", (rows, tile.lanes)) for _ in range(tile.vectors)]

    def everywhere(make: Callable[[Any, Any, Any, Any], Any]) -> Any:
        def vectors(row: Any, lane: Any) -> Any:
            columns = [(total, part * tile.lanes + lane) for part, total in enumerate(sums)]
            return sequence([make(total, row, column, lane) for total, column in columns])

        return unrolled("row", rows, lambda row: vector(tile.lanes, lambda n: vectors(row, n)))

    def clear(total: Any, row: Any, column: Any, lane: Any) -> Any:
        return tirx.BufferStore(total, tirx.const(0.0, "float32"), [row, lane])

    def store(total: Any, row: Any, column: Any, lane: Any) -> Any:
        return keep(row, column, total[row, lane])

    def reduce(steps: tuple[Any, ...]) -> Any:
        if len(steps) < len(extents):
            name = f"step{len(steps)}"
            return loop(name, extents[len(steps)], lambda step: reduce((*steps, step)))

        def add(total: Any, row: Any, column: Any, lane: Any) -> Any:
            product = data(row, *steps) * weight(column, *steps)
            return tirx.BufferStore(total, total[row, lane] + product, [row, lane])

        return sequence([*beside(*steps), everywhere(add)])

    return tirx.SeqStmt(
        [
            *map(tirx.AllocBuffer, sums),
            everywhere(clear),
            reduce(()),
            everywhere(store),
        ]
    )
