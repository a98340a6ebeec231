"""The input and the output transform of one tile of a Winograd convolution, as loops on vectors.

A matrix is applied to the columns of a tile and then to the rows of the result, which waits in a
patch of memory between: a tile has more values than there are vector registers. Tiles that need no
padding and reach over no edge take a path without conditions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.loops import all_of, bind, loop, number, sequence, vector, when
from tvm_rammer.kernel.winograd.match import Convolution3x3
from tvm_rammer.kernel.winograd.matrices import Matrix
from tvm_rammer.kernel.winograd.tiling import TileGrid, WinogradTiling

#: ``write(row, column, channel, value)`` and ``read(row, column, channel)``.
Write = Callable[[Any, Any, Any, Any], Any]
Read = Callable[[Any, Any, Any], Any]


def input_transform(
    conv: Convolution3x3, tiling: WinogradTiling, tile: Any, patch: Any, write: Write
) -> Any:
    """Transform all channels of a tile; one beyond the last repeats the last."""
    grid = grid_of(conv, tiling)
    which, bound = bind("which", tirx.min(tile, number(grid.num_tiles - 1)))
    names = zip(("image", "y", "x"), grid.place(which), strict=True)
    place, places = zip(*(bind(name, value) for name, value in names), strict=True)
    inside, plain, guarded = _reads(conv, grid, place)

    def channels(read: Read) -> Any:
        return loop(
            "channels",
            conv.in_channels // tiling.lanes,
            lambda number: _input_vector(tiling, patch, number * tiling.lanes, read, write),
        )

    body = channels(plain)
    if inside:
        body = tirx.IfThenElse(all_of(inside), body, channels(guarded))
    return sequence([bound, *places, body])


def output_transform(
    conv: Convolution3x3, tiling: WinogradTiling, tile: Any, first: Any, patch: Any, read: Read
) -> Any:
    """Transform a task's channels, from ``first`` on, of a tile; do the epilogue and store them."""
    grid = grid_of(conv, tiling)
    names = zip(("image", "y", "x"), grid.place(tile), strict=True)
    place, places = zip(*(bind(name, value) for name, value in names), strict=True)
    vectors = loop(
        "vector",
        tiling.task_tile.vectors,
        lambda number: _output_vector(
            conv, tiling, place, patch, number * tiling.register_tile.lanes, first, read
        ),
    )
    return sequence([*places, vectors])


def grid_of(conv: Convolution3x3, tiling: WinogradTiling) -> TileGrid:
    """The tiles of a convolution's outputs."""
    batch, height, width, _ = conv.output_shape
    return TileGrid(batch, height, width, tiling.transform.outputs)


def _reads(
    conv: Convolution3x3, grid: TileGrid, place: Sequence[Any]
) -> tuple[list[Any], Read, Read]:
    """When a tile's inputs are all there, how to read them then, and how otherwise."""
    image, y, x = place
    height, width = int(conv.data.shape[1]), int(conv.data.shape[2])
    over_bottom = grid.rows * grid.side + 2 > height
    over_right = grid.columns * grid.side + 2 > width
    padding = conv.padding()

    def plain(row: Any, column: Any, channel: Any) -> Any:
        value = conv.read((image, y + row, x + column, channel))
        return value if padding is None else value.args[1]

    def guarded(row: Any, column: Any, channel: Any) -> Any:
        value = conv.read((image, y + row, x + column, channel))
        edges = [y + row < height] * over_bottom + [x + column < width] * over_right
        if not edges:
            return value
        return tirx.if_then_else(all_of(edges), value, tirx.const(0.0, "float32"))

    last = grid.side + 1
    inside = [y + last < height] * over_bottom + [x + last < width] * over_right
    if padding is not None:
        corners = [(image, y + i, x + j, number(0)) for i in (0, last) for j in (0, last)]
        inside += [conv.read(corner).args[0] for corner in corners]
    return inside, plain, guarded


def _input_vector(tiling: WinogradTiling, patch: Any, first: Any, read: Read, write: Write) -> Any:
    factors, side = tiling.transform.data, tiling.transform.inputs

    def column(x: Any, lane: Any) -> Any:
        values = [read(number(y), x, first + lane) for y in range(side)]
        return _applied(
            factors, values, lambda y, value: tirx.BufferStore(patch, value, [number(y), x, lane])
        )

    def row(y: Any, lane: Any) -> Any:
        values = [patch[y, number(x), lane] for x in range(side)]
        return _applied(factors, values, lambda x, value: write(y, number(x), first + lane, value))

    return _columns_then_rows(side, column, side, row, tiling.lanes)


def _output_vector(
    conv: Convolution3x3,
    tiling: WinogradTiling,
    place: Sequence[Any],
    patch: Any,
    vector_start: Any,
    first: Any,
    read: Read,
) -> Any:
    image, top, left = place
    transform = tiling.transform
    _, height, width, _ = conv.output_shape

    def column(x: Any, lane: Any) -> Any:
        values = [read(number(y), x, vector_start + lane) for y in range(transform.inputs)]
        return _applied(
            transform.inverse,
            values,
            lambda y, value: tirx.BufferStore(patch, value, [number(y), x, lane]),
        )

    def row(y: Any, lane: Any) -> Any:
        def store(x: int, value: Any) -> Any:
            edges = [top + y < height] * bool(height % transform.outputs)
            edges += [left + x < width] * (0 < width % transform.outputs <= x)
            channel = first + vector_start + lane
            written = conv.write((image, top + y, left + x, channel), value)
            return when(edges, written)

        values = [patch[y, number(x), lane] for x in range(transform.inputs)]
        return _applied(transform.inverse, values, store)

    lanes = tiling.register_tile.lanes
    return _columns_then_rows(transform.inputs, column, transform.outputs, row, lanes)


def _columns_then_rows(
    columns: int, column: Callable[..., Any], rows: int, row: Callable[..., Any], lanes: int
) -> Any:
    return sequence(
        [
            loop("column", columns, lambda x: vector(lanes, lambda lane: column(x, lane))),
            loop("row", rows, lambda y: vector(lanes, lambda lane: row(y, lane))),
        ]
    )


def _applied(
    factors: Sequence[Matrix], values: Sequence[Any], use: Callable[[int, Any], Any]
) -> Any:
    """Apply a matrix, given by its factors, to a vector and use every result."""
    statements: list[Any] = []

    def name(value: Any) -> Any:
        variable, bound = bind("value", value)
        statements.append(bound)
        return variable

    values = [name(value) for value in values]
    for factor in factors:
        values = [_combination(row, values, name) for row in factor]
    return sequence([*statements, *(use(place, value) for place, value in enumerate(values))])


def _combination(row: Sequence[float], values: Sequence[Any], name: Callable[[Any], Any]) -> Any:
    terms = [(factor, value) for factor, value in zip(row, values, strict=True) if factor]
    if len(terms) == 1 and terms[0][0] == 1:
        return terms[0][1]
    # Terms without a factor first: then each of the others is one fused multiply-add.
    terms.sort(key=lambda term: term[0] != 1)
    parts = [v if factor == 1 else v * tirx.const(factor, "float32") for factor, v in terms]
    return name(functools.reduce(operator.add, parts))
