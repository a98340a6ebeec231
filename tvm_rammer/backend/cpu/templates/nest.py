"""The loop nest of a contraction: a register tile of rows x vectors, the reduction around it.

The tile's sums are a small buffer whose every index is a constant once its loops are unrolled, so
that LLVM keeps it in registers. In the innermost loops rows lie outside of vectors: one broadcast
and few weights are live; the other way round LLVM keeps the broadcasts and spills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from math import prod
from operator import add as plus
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.backend.cpu.templates.columns import Columns, Layout
from tvm_rammer.backend.cpu.templates.neighbours import Neighbours
from tvm_rammer.backend.cpu.templates.prefetch import SECOND, prefetch, prefetches
from tvm_rammer.backend.cpu.templates.reduction_loops import Guards, ReductionLoops, Values
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.backend.cpu.templates.repeated_results import (
    looped_stores,
    repeats_much,
    unrolled_stores,
)
from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.contraction import Axis, Contraction, load_of
from tvm_rammer.kernel.loops import (
    NEIGHBOURS,
    for_each,
    keep_loop,
    number,
    parallel,
    sequence,
    turn_of,
    unravel,
)
from tvm_rammer.kernel.nodes import substitute


@dataclass(frozen=True)
class Nest:
    """A contraction with all that was decided about it.

    Attributes
    ----------
    contraction : Contraction
    columns : Columns
        The axis of the vectors.
    layout : Layout
        How the columns are cut into vectors.
    rows : Axis, optional
        The axis whose neighbours share the weights of a tile.
    tile : RegisterTile
    taps : Axis, optional
        A reduced axis whose loop is unrolled.
    row_tasks : bool
        Whether each tile of rows is a task of its own, or all of them are one.
    rows_first : bool
        Whether a task is followed by the one with the next columns of the same rows, and not by the
        one with the next rows of the same columns.
    far_data : Axis, optional
        Where the second-level cache does not hold the data, the axis of the reduction.
    neighbours : Neighbours, optional
        The reduced axis of which a step takes several elements.
    packed : Var, optional
        The buffer of packed weights: ``[outer..., vector, reduced..., lane]``, neighbours in each
        lane.
    packed_axes : tuple of PrimExpr, tuple of Axis
        The ``outer`` indices and the ``reduced`` axes of that buffer.
    """

    contraction: Contraction
    columns: Columns
    layout: Layout
    rows: Axis | None
    tile: RegisterTile
    taps: Axis | None
    row_tasks: bool = False
    rows_first: bool = False
    far_data: Axis | None = None
    neighbours: Neighbours | None = None
    packed: Any = None
    packed_axes: tuple[tuple[Any, ...], tuple[Axis, ...]] = ((), ())

    @property
    def together(self) -> int:
        """Products that a step adds up in each lane."""
        return self.neighbours.count if self.neighbours else 1

    @property
    def num_tasks(self) -> int:
        """Tasks of the parallel loop."""
        return prod(self._counts())

    @property
    def has_orders(self) -> bool:
        """Whether tasks of rows first and of columns first are two orders."""
        columns = self.layout.groups * self.layout.tiles
        rows = self.num_tasks // (columns * prod(axis.extent for axis in self._outer_axes()[0]))
        return columns > 1 and rows > 1

    def _counts(self) -> list[int]:
        """How many tasks there are along each axis, the outermost first."""
        batch, others = self._outer_axes()
        columns = [self.layout.groups, self.layout.tiles]
        rows = [axis.extent for axis in others]
        if self.rows is not None and self.row_tasks:
            rows.append(self._row_tiles())
        counts = [axis.extent for axis in batch]
        return counts + ([*rows, *columns] if self.rows_first else [*columns, *rows])

    def statement(self) -> Any:
        """The parallel loop over all tasks."""
        batch, others = self._outer_axes()
        counts = self._counts()
        num_rows = len(counts) - len(batch) - 2

        def task(place: Any) -> Any:
            parts = unravel(place, counts)
            places, parts = parts[: len(batch)], parts[len(batch) :]
            first = num_rows if self.rows_first else 0
            group, tile = parts[first : first + 2]
            places += parts[:first] + parts[first + 2 :]
            axes = [*batch, *others]
            values = {axis.var: place for axis, place in zip(axes, places, strict=False)}
            at = _Place(values, group, tile)
            return self._row_tile(at, places[-1]) if num_rows > len(others) else self._all_rows(at)

        return parallel("task", prod(counts), task)

    def _outer_axes(self) -> tuple[list[Axis], list[Axis]]:
        """The axes of the tasks: first those along which the weights differ, then all others.

        Weights that data choose may be the same again: what several tasks choose among stays near.
        """
        indices = load_of(self.columns.weights(self.contraction)).indices
        used = variables([index for index in indices if not loads(index)])
        inner = {self.columns.axis.var, *([self.rows.var] if self.rows else [])}
        outer = [axis for axis in self.contraction.spatial if axis.var not in inner]
        first = [axis for axis in outer if axis.var in used]
        return first, [axis for axis in outer if axis.var not in used]

    # Rows

    def _row_tiles(self) -> int:
        return -(-self.rows.extent // self.tile.rows) if self.rows else 1

    def _all_rows(self, at: _Place) -> Any:
        if self.rows is None:
            return self._tile(at, number(0), 1)
        full, ragged = divmod(self.rows.extent, self.tile.rows)
        parts = []
        if full:
            parts.append(for_each("rows", full, lambda tile: self._full_tile(at, tile)))
        if ragged:
            parts.append(self._tile(at, number(full * self.tile.rows), ragged))
        return sequence(parts)

    def _row_tile(self, at: _Place, tile: Any) -> Any:
        """A tile of rows by its number; the last one may have fewer rows."""
        assert self.rows is not None
        full, ragged = divmod(self.rows.extent, self.tile.rows)
        if not ragged:
            return self._full_tile(at, tile)
        last = self._tile(at, number(full * self.tile.rows), ragged)
        return tirx.IfThenElse(tile < full, self._full_tile(at, tile), last) if full else last

    def _full_tile(self, at: _Place, tile: Any) -> Any:
        return self._tile(at, tile * self.tile.rows, self.tile.rows)

    # One tile

    def _tile(self, at: _Place, first_row: Any, rows: int) -> Any:
        contraction, tile, blocked = self.contraction, self.tile, self.reduction.blocked
        size = rows * tile.vectors * tile.lanes
        shape = (size,)
        sums = tirx.decl_buffer((size * tile.chains,), contraction.dtype, "sums")
        zero = tirx.const(0, contraction.dtype)
        totals = tirx.decl_buffer(shape, contraction.dtype, "totals") if blocked else sums

        def element(row: Any, vector: Any, lane: Any) -> Any:
            return (row * tile.vectors + vector) * tile.lanes + lane

        def inside(
            store: Callable[[Any, Any, Values, Any], Any], marks: Mapping[str, int] | None = None
        ) -> Any:
            def statement(row: Any, vector: Any, lane: Any) -> Any:
                values = self._values(at, first_row, row, vector, lane)
                return store(element(row, vector, lane), vector, values, lane)

            return unrolled(rows, tile, statement, marks)

        def cleared(place: Any, chains: Iterable[int]) -> list[Any]:
            return [tirx.BufferStore(sums, zero, [place + k * size]) for k in chains]

        def sum_of_chains(place: Any) -> Any:
            return reduce(plus, (sums[place + k * size] for k in range(tile.chains)))

        def start(place: Any, *_: Any) -> Any:
            first = tirx.BufferStore(totals, contraction.initial, [place])
            return sequence([first, *([] if blocked else cleared(place, range(1, tile.chains)))])

        def join(place: Any, *_: Any) -> Any:
            return tirx.BufferStore(sums, sum_of_chains(place), [place])

        def write(place: Any, vector: Any, values: Values, lane: Any) -> Any:
            return unrolled_stores(contraction, totals[place], values)

        def writes() -> list[Any]:
            if not repeats_much(contraction):
                return [inside(write)]
            # A buffer whose indices vary does not stay in registers: the sums shall.
            kept = tirx.decl_buffer(shape, contraction.dtype, "kept")
            keep = inside(lambda place, *_: tirx.BufferStore(kept, totals[place], [place]))

            def total(row: Any, vector: Any, lane: Any) -> Any:
                return kept[element(row, vector, lane)]

            def places(row: Any, vector: Any, lane: Any) -> Values:
                return self._values(at, first_row, row, vector, lane)

            stores = looped_stores(contraction, tile, rows, total, places)
            return [tirx.AllocBuffer(kept), keep, stores]

        def block(additions: Any) -> Any:
            def clear(place: Any, *_: Any) -> Any:
                return sequence(cleared(place, range(tile.chains)))

            def total(place: Any, *_: Any) -> Any:
                return tirx.BufferStore(totals, totals[place] + sum_of_chains(place), [place])

            return sequence([inside(clear), additions, inside(total)])

        def add(reduced: Values, guards: Guards, chain: int) -> Any:
            def statement(place: Any, vector: Any, values: Values, lane: Any) -> Any:
                place = place + chain * size
                values = {**values, **reduced}
                products = (
                    self._data(at, guards, self._neighbour(values, k))
                    * self._weights(at, vector, values, lane * self.together + k)
                    for k in range(self.together)
                )
                return tirx.BufferStore(sums, sums[place] + reduce(plus, products), [place])

            before = self._next_rows(at, first_row, rows, reduced)
            if self.neighbours is None:
                return sequence([*before, inside(statement)])
            # LLVM takes several steps at once otherwise, adds in another order, and spills sums.
            return sequence([keep_loop(), *before, inside(statement, {NEIGHBOURS: self.together})])

        def prepare(row: Any) -> list[Any]:
            return self._prefetches(at, first_row, row)

        return sequence(
            [
                tirx.AllocBuffer(sums),
                *([tirx.AllocBuffer(totals)] if blocked else []),
                inside(start),
                self.reduction.statement(at.values, first_row, rows, add, block, prepare),
                *([inside(join)] if tile.chains > 1 and not blocked else []),
                *writes(),
            ]
        )

    def _prefetches(self, at: _Place, first_row: Any, row: Any) -> list[Any]:
        def first_lane(vector: int) -> Values:
            return self._values(at, first_row, row, number(vector), number(0))

        return prefetches(self.contraction, self.rows, self.columns.axis, self.tile, first_lane)

    def _next_rows(self, at: _Place, first_row: Any, rows: int, reduced: Values) -> list[Any]:
        """What prefetches the data of the rows after a tile's: one row after another, step by step.

        Not into the first-level cache: rows whose distance is a power of two share few places.
        """
        if self.far_data is None:
            return []
        turn = turn_of(reduced[self.far_data.var], rows)
        place = self._values(at, first_row, number(rows) + turn, number(0), number(0))
        first = self._neighbour({**place, **reduced}, 0)
        return [prefetch(load_of(self._data(at, (), first)), level=SECOND)]

    @cached_property
    def reduction(self) -> ReductionLoops:
        """The loops around the multiply-adds of a tile."""
        contraction, neighbours = self.contraction, self.neighbours
        if neighbours is not None:
            steps = replace(neighbours.axis, extent=neighbours.axis.extent // neighbours.count)
            reduced = (steps if axis is neighbours.axis else axis for axis in contraction.reduced)
            contraction = replace(contraction, reduced=tuple(reduced))
        return ReductionLoops(contraction, self.columns, self.rows, self.taps, self.tile.chains)

    def _neighbour(self, values: Values, number: int) -> Values:
        """The axes of one of the neighbours that a step multiplies."""
        if self.neighbours is None:
            return values
        var = self.neighbours.axis.var
        return {**values, var: values[var] * self.together + number}

    def _values(
        self, at: _Place, first_row: Any, row: Any, vector: Any, lane: Any
    ) -> dict[Any, Any]:
        first = self.layout.first(at.tile * self.tile.vectors + vector)
        column = at.group * self.layout.group + first + lane
        values = {**at.values, self.columns.axis.var: column}
        if self.rows is not None:
            values[self.rows.var] = first_row + row
        return values

    def _data(self, at: _Place, guards: Guards, values: Values) -> Any:
        """The data at a place: a division of the column by the columns of a group is the group."""
        column = self.columns.axis.var

        def divide(quotient: Any) -> Any:
            return at.group if quotient.a.same_as(column) else quotient

        data = self.reduction.data.under(guards)
        if not self.columns.elementwise:
            data = tvm_ffi.structural_map(data, (tirx.FloorDiv, divide))
        return substitute(data, values)

    def _weights(self, at: _Place, vector: Any, values: Values, lane: Any) -> Any:
        if self.packed is None:
            return substitute(self.columns.weights(self.contraction), values)
        outer, reduced = self.packed_axes
        place = (at.group * self.layout.tiles + at.tile) * self.tile.vectors + vector
        indices = [
            *(substitute(index, values) for index in outer),
            place,
            *(values[axis.var] for axis in reduced),
            lane,
        ]
        return tirx.BufferLoad(self.packed, indices).astype(self.contraction.dtype)


@dataclass(frozen=True)
class _Place:
    """Where a task is: the axes of the tasks, the group of columns and its tile."""

    values: dict[Any, Any]
    group: Any
    tile: Any


def unrolled(
    rows: int,
    tile: RegisterTile,
    body: Callable[[Any, Any, Any], Any],
    marks: Mapping[str, int] | None = None,
) -> Any:
    """``body(row, vector, lane)`` for all of a register tile, without a loop that is left.

    What is marked are the loops over lanes.
    """

    def lanes(row: Any, vector: Any) -> Any:
        lane = partial(body, row, vector)
        return for_each("lane", tile.lanes, lane, ForKind.VECTORIZED, marks=marks)

    def vectors(row: Any) -> Any:
        return for_each("vector", tile.vectors, partial(lanes, row), ForKind.UNROLLED)

    return for_each("row", rows, vectors, ForKind.UNROLLED)
