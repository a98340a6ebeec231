"""The loop nest of a contraction: a register tile of rows x vectors, the reduction around it.

The tile's sums are a small buffer whose every index is a constant once its loops are unrolled, so
that LLVM keeps it in registers. In the innermost loops rows lie outside of vectors: one broadcast
and few weights are live; the other way round LLVM keeps the broadcasts and spills.

Long sums are taken in blocks, whose sums are then added up: the rounding error of a chain of
additions grows with its length, and the few additions more are not noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.columns import Columns, Layout
from tvm_rammer.kernel.contraction import Axis, Contraction, load_of, rewrite, substitute
from tvm_rammer.kernel.guards import Guarded, everywhere, guarded, mentions, together
from tvm_rammer.kernel.prefetch import SECOND, prefetch, prefetches
from tvm_rammer.kernel.register_tile import RegisterTile

#: Columns that are packed at once: of more, whose distance is a power of two, the first-level cache
#: would hold only some, as it has few places for addresses that are alike.
_PACKED_AT_ONCE = 8
#: A chain of additions is at most this long: with sums of thousands, a third of the error is left
#: that one chain has.
_LONGEST_CHAIN = 512
#: A shorter chain costs more than it gains.
_SHORTEST_CHAIN = 64

Values = Mapping[Any, Any]
Guards = Sequence[Any]


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
    few_tasks : int
        With fewer tasks than this, the tiles of rows become tasks of their own.
    rows_first : bool
        Whether a task is followed by the one with the next columns of the same rows, and not by the
        one with the next rows of the same columns.
    far_data : Axis, optional
        Where the second-level cache does not hold the data, the axis of the reduction.
    packed : Var, optional
        The buffer of packed weights: ``[outer..., vector, reduced..., lane]``.
    packed_axes : tuple of Axis, tuple of Axis
        The ``outer`` and the ``reduced`` axes of that buffer.
    """

    contraction: Contraction
    columns: Columns
    layout: Layout
    rows: Axis | None
    tile: RegisterTile
    taps: Axis | None
    few_tasks: int
    rows_first: bool = False
    far_data: Axis | None = None
    packed: Any = None
    packed_axes: tuple[tuple[Axis, ...], tuple[Axis, ...]] = ((), ())

    def statement(self) -> Any:
        """The parallel loop over all tasks."""
        batch, others = self._outer_axes()
        columns = [self.layout.groups, self.layout.tiles]
        rows = [axis.extent for axis in others]
        row_tasks = prod([*(axis.extent for axis in batch), *columns, *rows]) < self.few_tasks
        if self.rows is not None and row_tasks:
            rows.append(self._row_tiles())
        counts = [axis.extent for axis in batch]
        counts += [*rows, *columns] if self.rows_first else [*columns, *rows]

        def task(number: Any) -> Any:
            parts = _digits(number, counts)
            places, parts = parts[: len(batch)], parts[len(batch) :]
            first = len(rows) if self.rows_first else 0
            group, tile = parts[first : first + 2]
            places += parts[:first] + parts[first + 2 :]
            axes = [*batch, *others]
            values = {axis.var: place for axis, place in zip(axes, places, strict=False)}
            at = _Place(values, group, tile)
            return self._row_tile(at, places[-1]) if len(rows) > len(others) else self._all_rows(at)

        return loop("task", prod(counts), task, ForKind.PARALLEL)

    def _outer_axes(self) -> tuple[list[Axis], list[Axis]]:
        """The axes of the tasks: first those along which the weights differ, then all others."""
        used = variables([self.columns.weights(self.contraction)])
        inner = {self.columns.axis.var, *([self.rows.var] if self.rows else [])}
        outer = [axis for axis in self.contraction.spatial if axis.var not in inner]
        first = [axis for axis in outer if axis.var in used]
        return first, [axis for axis in outer if axis.var not in used]

    # Rows

    def _row_tiles(self) -> int:
        return -(-self.rows.extent // self.tile.rows) if self.rows else 1

    def _all_rows(self, at: _Place) -> Any:
        if self.rows is None:
            return self._tile(at, _number(0), 1)
        full, ragged = divmod(self.rows.extent, self.tile.rows)
        parts = []
        if full:
            parts.append(loop("rows", full, lambda number: self._full_tile(at, number)))
        if ragged:
            parts.append(self._tile(at, _number(full * self.tile.rows), ragged))
        return sequence(parts)

    def _row_tile(self, at: _Place, number: Any) -> Any:
        """A tile of rows by its number; the last one may have fewer rows."""
        assert self.rows is not None
        full, ragged = divmod(self.rows.extent, self.tile.rows)
        if not ragged:
            return self._full_tile(at, number)
        last = self._tile(at, _number(full * self.tile.rows), ragged)
        return tirx.IfThenElse(number < full, self._full_tile(at, number), last) if full else last

    def _full_tile(self, at: _Place, number: Any) -> Any:
        return self._tile(at, number * self.tile.rows, self.tile.rows)

    # One tile

    def _tile(self, at: _Place, first_row: Any, rows: int) -> Any:
        contraction, tile = self.contraction, self.tile
        shape = (rows * tile.vectors * tile.lanes,)
        sums = tirx.decl_buffer(shape, contraction.dtype, "sums")
        totals = tirx.decl_buffer(shape, contraction.dtype, "totals") if self.blocked else sums

        def element(row: Any, vector: Any, lane: Any) -> Any:
            return (row * tile.vectors + vector) * tile.lanes + lane

        def inside(store: Callable[[Any, Any, Values, Any], Any]) -> Any:
            def statement(row: Any, vector: Any, lane: Any) -> Any:
                values = self._values(at, first_row, row, vector, lane)
                return store(element(row, vector, lane), vector, values, lane)

            return _unrolled(rows, tile.vectors, tile.lanes, statement)

        def start(place: Any, *_: Any) -> Any:
            return tirx.BufferStore(totals, contraction.initial, [place])

        def write(place: Any, vector: Any, values: Values, lane: Any) -> Any:
            return self._write(totals[place], values)

        def block(additions: Any) -> Any:
            def clear(place: Any, *_: Any) -> Any:
                return tirx.BufferStore(sums, tirx.const(0, contraction.dtype), [place])

            def total(place: Any, *_: Any) -> Any:
                return tirx.BufferStore(totals, totals[place] + sums[place], [place])

            return sequence([inside(clear), additions, inside(total)])

        def add(reduced: Values, guards: Guards) -> Any:
            def statement(place: Any, vector: Any, values: Values, lane: Any) -> Any:
                values = {**values, **reduced}
                data = self._data(at, guards, values)
                product = data * self._weights(at, vector, values, lane)
                return tirx.BufferStore(sums, sums[place] + product, [place])

            return sequence([*self._next_rows(at, first_row, rows, reduced), inside(statement)])

        return sequence(
            [
                tirx.AllocBuffer(sums),
                *([tirx.AllocBuffer(totals)] if self.blocked else []),
                *self._prefetches(at, first_row, rows),
                inside(start),
                self._reduction(at, first_row, rows, add, block),
                inside(write),
            ]
        )

    def _prefetches(self, at: _Place, first_row: Any, rows: int) -> list[Any]:
        def first_lane(row: int, vector: int) -> Values:
            return self._values(at, first_row, _number(row), _number(vector), _number(0))

        tile = replace(self.tile, rows=rows)
        return prefetches(self.contraction, self.rows, self.columns.axis, tile, first_lane)

    def _next_rows(self, at: _Place, first_row: Any, rows: int, reduced: Values) -> list[Any]:
        """What prefetches the data of the rows after a tile's: one row after another, step by step.

        Not into the first-level cache: rows whose distance is a power of two share few places.
        """
        if self.far_data is None:
            return []
        turn = reduced[self.far_data.var] % _number(1 << (rows - 1).bit_length())
        place = self._values(at, first_row, _number(rows) + turn, _number(0), _number(0))
        return [prefetch(load_of(self._data(at, (), {**place, **reduced})), level=SECOND)]

    @property
    def blocked(self) -> bool:
        """Whether the sums are so long that they are taken in blocks."""
        floating = self.contraction.dtype.startswith("float")
        return floating and prod(axis.extent for axis in self.reduced) > _LONGEST_CHAIN

    def _reduction(
        self,
        at: _Place,
        first_row: Any,
        rows: int,
        body: Callable[[Values, Guards], Any],
        block: Callable[[Any], Any],
    ) -> Any:
        """The loops of the reduction, with the guards of the data as far outside as can be.

        ``block`` is put around the loops of each block of a long sum.
        """
        row = () if self.rows is None else (self.rows.var,)
        ends: dict[Any, tuple[Any, Any]] = {}
        if self.rows is not None:
            ends[self.rows.var] = (first_row, first_row + (rows - 1))

        def nest(
            axes: Sequence[Axis], values: Values, guards: Guards, inline: Guards, whole: bool
        ) -> Any:
            steps = prod(axis.extent for axis in axes)
            if whole and steps <= _LONGEST_CHAIN:
                return block(nest(axes, values, guards, inline, False))
            waiting = [axis.var for axis in axes]
            ready = [guard for guard in guards if not mentions(guard, waiting)]
            left = [guard for guard in guards if mentions(guard, waiting)]
            bound = {**at.values, **values}
            skip = [guard for guard in ready if not mentions(guard, row)]
            each = [guard for guard in ready if mentions(guard, row)]
            if skip:
                inner = nest(axes, values, [*each, *left], inline, whole)
                return tirx.IfThenElse(substitute(together(skip), bound), inner, None)
            if each and not self.columns.elementwise:
                plain = nest(axes, values, left, inline, whole)
                guarded = nest(axes, values, left, [*inline, *each], whole)
                return tirx.IfThenElse(substitute(everywhere(each, ends), bound), plain, guarded)
            inline = [*inline, *each]
            if not axes:
                return body(values, inline)
            axis, *rest = axes
            kind = ForKind.UNROLLED if axis is self.taps else ForKind.SERIAL

            def steps_of(extent: int, first: Any, whole: bool) -> Any:
                return loop(
                    str(axis.var.name),
                    extent,
                    lambda number: nest(
                        rest, {**values, axis.var: first + number}, left, inline, whole
                    ),
                    kind,
                )

            inner = steps // axis.extent
            if not whole or inner > _LONGEST_CHAIN:
                return steps_of(axis.extent, _number(0), whole)
            length = _block_length(axis.extent, inner)
            full, ragged = divmod(axis.extent, length)
            blocks = [
                loop("block", full, lambda b: block(steps_of(length, b * length, False))),
                *([block(steps_of(ragged, _number(full * length), False))] if ragged else []),
            ]
            return sequence(blocks)

        guards = self.data.guards
        general = nest(self.reduced, {}, guards, [], self.blocked)
        if not (guards and self.columns.elementwise):
            return general
        for axis in self.reduced:
            ends[axis.var] = (_number(0), _number(axis.extent - 1))
        plain = nest(self.reduced, {}, [], [], self.blocked)
        inside = substitute(everywhere(guards, ends), at.values)
        return tirx.IfThenElse(inside, plain, general)

    def _values(
        self, at: _Place, first_row: Any, row: Any, vector: Any, lane: Any
    ) -> dict[Any, Any]:
        number = at.tile * self.tile.vectors + vector
        column = at.group * self.layout.group + self.layout.first(number) + lane
        values = {**at.values, self.columns.axis.var: column}
        if self.rows is not None:
            values[self.rows.var] = first_row + row
        return values

    def _data(self, at: _Place, guards: Guards, values: Values) -> Any:
        """The data at a place: a division of the column by the columns of a group is the group."""
        column = self.columns.axis.var

        def divide(quotient: Any) -> Any:
            return at.group if quotient.a.same_as(column) else quotient

        data = self.data.under(guards)
        shared = not self.columns.elementwise
        return substitute(rewrite(data, tirx.FloorDiv, divide) if shared else data, values)

    @cached_property
    def data(self) -> Guarded:
        """The data and what guards them."""
        return guarded(self.columns.data(self.contraction))

    @cached_property
    def reduced(self) -> tuple[Axis, ...]:
        """The reduced axes as loops, those that guards depend on outside of the others."""
        axes = self.contraction.reduced
        first = [axis for axis in axes if any(mentions(g, [axis.var]) for g in self.data.guards)]
        return (*first, *(axis for axis in axes if axis not in first))

    def _weights(self, at: _Place, vector: Any, values: Values, lane: Any) -> Any:
        if self.packed is None:
            return substitute(self.columns.weights(self.contraction), values)
        outer, reduced = self.packed_axes
        number = (at.group * self.layout.tiles + at.tile) * self.tile.vectors + vector
        indices = [
            *(values[axis.var] for axis in outer),
            number,
            *(values[axis.var] for axis in reduced),
            lane,
        ]
        return tirx.BufferLoad(self.packed, indices)

    def _write(self, total: Any, values: Values) -> Any:
        def repeat(axes: Sequence[Axis], values: Values) -> Any:
            if not axes:
                return self.contraction.epilogue(values, total)
            axis, *rest = axes
            return loop(
                "repeat",
                axis.extent,
                lambda number: repeat(rest, {**values, axis.var: number}),
                ForKind.UNROLLED,
            )

        return repeat(self.contraction.repeated, values)


@dataclass(frozen=True)
class _Place:
    """Where a task is: the axes of the tasks, the group of columns and its tile."""

    values: dict[Any, Any]
    group: Any
    tile: Any


def pack(nest: Nest) -> Any:
    """The parallel loop that packs the weights when the kernel runs."""
    layout = nest.layout
    outer, reduced = nest.packed_axes
    per_group = layout.tiles * layout.vectors
    lanes = min(layout.lanes, _PACKED_AT_ONCE)
    counts = [*(axis.extent for axis in outer), layout.total]

    def task(number: Any) -> Any:
        *places, vector = _digits(number, counts)
        values = {axis.var: place for axis, place in zip(outer, places, strict=True)}
        first = vector // per_group * layout.group + layout.first(vector % per_group)

        def element(part: Any, axes: Sequence[Axis], values: Values) -> Any:
            if axes:
                axis, *rest = axes
                return loop(
                    str(axis.var.name),
                    axis.extent,
                    lambda number: element(part, rest, {**values, axis.var: number}),
                )
            return loop(
                "lane", lanes, lambda lane: store(part * lanes + lane, values), ForKind.VECTORIZED
            )

        def store(lane: Any, values: Values) -> Any:
            value = substitute(
                nest.columns.weights(nest.contraction),
                {**values, nest.columns.axis.var: first + lane},
            )
            indices = [*places, vector, *(values[axis.var] for axis in reduced), lane]
            return tirx.BufferStore(nest.packed, value, indices)

        return loop("part", layout.lanes // lanes, lambda part: element(part, reduced, values))

    return loop("vector", prod(counts), task, ForKind.PARALLEL)


def loop(name: str, extent: int, body: Callable[[Any], Any], kind: ForKind = ForKind.SERIAL) -> Any:
    """A loop of constant extent; one of a single iteration only if it is a loop of tasks."""
    if extent == 1 and kind != ForKind.PARALLEL:
        return body(_number(0))
    var = tirx.Var(name, "int64")
    return tirx.For(var, _number(0), _number(extent), kind, body(var))


def _block_length(extent: int, inner: int) -> int:
    """How much of an axis makes a block: a divisor of its extent, unless all are small."""
    most = _LONGEST_CHAIN // inner
    least = -(-_SHORTEST_CHAIN // inner)
    return next((n for n in range(most, least - 1, -1) if extent % n == 0), most)


def _number(value: int) -> Any:
    return tirx.const(value, "int64")


def sequence(statements: Sequence[Any]) -> Any:
    """Statements in order."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def _unrolled(rows: int, vectors: int, lanes: int, body: Callable[[Any, Any, Any], Any]) -> Any:
    return loop(
        "row",
        rows,
        lambda row: loop(
            "vector",
            vectors,
            lambda vector: loop(
                "lane", lanes, lambda lane: body(row, vector, lane), ForKind.VECTORIZED
            ),
            ForKind.UNROLLED,
        ),
        ForKind.UNROLLED,
    )


def _digits(number: Any, counts: Sequence[int]) -> list[Any]:
    """A number in the mixed base of some counts, the last digit changing fastest."""
    digits = []
    for count in reversed(counts[1:]):
        digits.append(number % count if count > 1 else _number(0))
        number = number // count
    return [number, *digits[::-1]]
