"""The input and the output transform of one tile of a Winograd convolution, as loops on vectors.

A matrix is applied to the columns of a tile and then to the rows of the result, which waits in a
patch of memory between: a tile has more values than there are vector registers. Columns of a tile
that needs no padding and reaches over no edge are read without conditions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution
from tvm_rammer.backend.cpu.templates.winograd.matrices import Matrix
from tvm_rammer.backend.cpu.templates.winograd.tiling import TileGrid, WinogradTiling
from tvm_rammer.kernel.blocks import is_zero, variables
from tvm_rammer.kernel.loops import bind, loop, number, rolled, sequence, vector, when
from tvm_rammer.kernel.nodes import all_of, conjuncts

#: ``write(row, column, channel, value)`` and ``read(row, column, channel)``.
Write = Callable[[Any, Any, Any, Any], Any]
Read = Callable[[Any, Any, Any], Any]


def input_transform(
    conv: PlainConvolution, tiling: WinogradTiling, tile: Any, patch: Any, write: Write
) -> Any:
    """Transform all channels of a tile; one beyond the last repeats the last."""
    grid, lanes, side = grid_of(conv, tiling), tiling.lanes, tiling.transform.inputs
    which, bound = bind("which", tirx.min(tile, number(grid.num_tiles - 1)))
    names = zip(("image", "y", "x"), grid.place(which), strict=True)
    place, places = zip(*(bind(name, value) for name, value in names), strict=True)
    inputs = TileInputs(conv, grid, place)
    tests = inputs.tests()

    def transform(first: Any) -> Any:
        columns = loop("column", side, lambda x: _column(tiling, patch, x, first, inputs.read))
        if tests:
            at_edge = _columns_at_edge(tiling, patch, first, inputs)
            columns = tirx.IfThenElse(all_of(tests), columns, at_edge)
        return sequence([columns, _rows(tiling, patch, first, write)])

    body = vectors_of(conv.channels.inputs, lanes, transform)
    return sequence([bound, *places, body])


def vectors_of(channels: int, lanes: int, made: Callable[[Any], Any]) -> Any:
    """What is made of the vector from a first channel on, for all channels.

    The last vector overlaps where they do not divide the channels.
    """

    def of_vector(vector: Any) -> Any:
        first = vector * lanes
        return made(tirx.min(first, number(channels - lanes)) if channels % lanes else first)

    return loop("channels", -(-channels // lanes), of_vector)


def output_transform(
    conv: PlainConvolution,
    tiling: WinogradTiling,
    tile: Any,
    channel: Callable[[Any], Any],
    patch: Any,
    read: Read,
) -> Any:
    """Transform a task's channels of a tile; do the epilogue and store them.

    ``channel`` is the first of a vector, given by its number.
    """
    grid = grid_of(conv, tiling)
    names = zip(("image", "y", "x"), grid.place(tile), strict=True)
    place, places = zip(*(bind(name, value) for name, value in names), strict=True)
    vectors = loop(
        "vector",
        tiling.task_tile.vectors,
        lambda number: _output_vector(
            conv,
            tiling,
            place,
            patch,
            number * tiling.register_tile.lanes,
            channel(number),
            read,
        ),
    )
    return sequence([*places, vectors])


def grid_of(conv: PlainConvolution, tiling: WinogradTiling) -> TileGrid:
    """The tiles of a convolution's outputs."""
    return TileGrid(*conv.output_extents, tiling.transform.outputs)


def _columns_at_edge(tiling: WinogradTiling, patch: Any, first: Any, inputs: TileInputs) -> Any:
    """Transform the columns of a vector of channels where some inputs are not there.

    A column is read or skipped as a whole, and of each the same rows: the processor foresees that.
    """
    side = tiling.transform.inputs

    def column(x: Any) -> Any:
        made = _column(tiling, patch, x, first, inputs.read_of_column)
        tests = inputs.column_tests(x)
        if not tests:
            return made

        def clear(lane: Any) -> Any:
            zero, places = tirx.const(0.0, "float32"), [(number(y), x, lane) for y in range(side)]
            return sequence([tirx.BufferStore(patch, zero, place) for place in places])

        return tirx.IfThenElse(all_of(tests), made, vector(tiling.lanes, clear))

    return rolled("column", side, column)


def _column(tiling: WinogradTiling, patch: Any, x: Any, first: Any, read: Read) -> Any:
    def transform(lane: Any) -> Any:
        values = [read(number(y), x, first + lane) for y in range(tiling.transform.inputs)]
        return applied(
            tiling.transform.data,
            values,
            lambda y, value: tirx.BufferStore(patch, value, [number(y), x, lane]),
        )

    return vector(tiling.lanes, transform)


def _rows(tiling: WinogradTiling, patch: Any, first: Any, write: Write) -> Any:
    """Transform the rows of what the columns became."""
    side = tiling.transform.inputs

    def row(y: Any, lane: Any) -> Any:
        values = [patch[y, number(x), lane] for x in range(side)]
        return applied(
            tiling.transform.data,
            values,
            lambda x, value: write(y, number(x), first + lane, value),
        )

    return loop("row", side, lambda y: vector(tiling.lanes, lambda lane: row(y, lane)))


def _output_vector(
    conv: PlainConvolution,
    tiling: WinogradTiling,
    place: Sequence[Any],
    patch: Any,
    vector_start: Any,
    channel: Any,
    read: Read,
) -> Any:
    image, top, left = place
    transform = tiling.transform
    _, height, width = conv.output_extents

    def column(x: Any, lane: Any) -> Any:
        values = [read(number(y), x, vector_start + lane) for y in range(transform.inputs)]
        return applied(
            transform.inverse,
            values,
            lambda y, value: tirx.BufferStore(patch, value, [number(y), x, lane]),
        )

    def row(y: Any, lane: Any) -> Any:
        def store(x: int, value: Any) -> Any:
            edges = [top + y < height] * bool(height % transform.outputs)
            edges += [left + x < width] * (0 < width % transform.outputs <= x)
            written = conv.write((image, top + y, left + x, channel + lane), value)
            return when(edges, written)

        values = [patch[y, number(x), lane] for x in range(transform.inputs)]
        return applied(transform.inverse, values, store)

    lanes = tiling.register_tile.lanes
    # Where the inverse is a stage of its own with the products, it waits for them, not for code.
    steps = loop if tiling.fused else rolled
    return sequence(
        [
            steps("column", transform.inputs, lambda x: vector(lanes, lambda n: column(x, n))),
            steps("row", transform.outputs, lambda y: vector(lanes, lambda n: row(y, n))),
        ]
    )


def applied(
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


@dataclass(frozen=True)
class TileInputs:
    """The inputs of the tile whose first one, in the padded data, is at ``place``.

    What is padding is not read, and what a tile has beyond the last row or column counts as 0.
    """

    conv: PlainConvolution
    grid: TileGrid
    place: tuple[Any, Any, Any]

    def tests(self) -> list[Any]:
        """Conditions that hold if all inputs are there; none if they always are."""
        image, y, x = self.place
        last = self.grid.side + 1
        tests = self._before_ends(y + last, x + last)
        if self.conv.padding() is not None:
            corners = [(image, y + i, x + j, number(0)) for i in (0, last) for j in (0, last)]
            tests += [self.conv.read(corner).args[0] for corner in corners]
        return tests

    def read(self, row: Any, column: Any, channel: Any) -> Any:
        """An input of a tile whose inputs are all there."""
        image, y, x = self.place
        value = self.conv.read((image, y + row, x + column, channel))
        return value if self.conv.padding() is None else value.args[1]

    def column_tests(self, column: Any) -> list[Any]:
        """Conditions that hold if any of a column is there; what is not counts as 0."""
        tests, _ = self._at_edge(number(0), column, number(0))
        return [test for test in tests if self._is_of_column(test, column)]

    def read_of_column(self, row: Any, column: Any, channel: Any) -> Any:
        """An input whose column's tests hold."""
        tests, value = self._at_edge(row, column, channel)
        others = [test for test in tests if not self._is_of_column(test, column)]
        return tirx.if_then_else(all_of(others), value, _zero()) if others else value

    def _at_edge(self, row: Any, column: Any, channel: Any) -> tuple[list[Any], Any]:
        """When an input is there, and the input."""
        image, y, x = self.place
        value = self.conv.read((image, y + row, x + column, channel))
        tests = self._before_ends(y + row, x + column)
        padding = self.conv.padding()
        if padding is None or not is_zero(padding.args[2]):
            return tests, value
        return [*tests, *conjuncts(value.args[0])], value.args[1]

    def _before_ends(self, y: Any, x: Any) -> list[Any]:
        """That such a row and column are no later than the last, where tiles reach over it."""
        _, height, width, _ = map(int, self.conv.data.shape)
        over_bottom = self.grid.rows * self.grid.side + 2 > height
        over_right = self.grid.columns * self.grid.side + 2 > width
        return [y < height] * over_bottom + [x < width] * over_right

    def _is_of_column(self, test: Any, column: Any) -> bool:
        """Whether a condition is the same for all of a column."""
        x, used = self.place[2], variables(test)
        return x in used and used <= {x, *variables(column)}


def _zero() -> Any:
    return tirx.const(0.0, "float32")
