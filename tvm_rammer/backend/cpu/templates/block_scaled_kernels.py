"""The loop nests of products with weights of a few bits, for few rows and for many.

A vector of words is several vectors of integers, which shifts take apart in registers. For few
rows, the sums of a block are scaled once, and a block's offset is multiplied by the sum of its
data, which all vectors of a tile have in common. For many, a part of the columns becomes floats in
the first-level cache, which then are multiplied as if they were weights of float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add as plus
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.backend.cpu.templates.columns import Layout
from tvm_rammer.backend.cpu.templates.nest import unrolled
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.backend.cpu.templates.repeated_results import (
    looped_stores,
    repeats_much,
    unrolled_stores,
)
from tvm_rammer.kernel.block_scaled import BlockScaled
from tvm_rammer.kernel.loops import for_each, number, parallel, sequence, unravel
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.rprogram import dtype_bytes

#: Steps of the innermost loop's body.
_STEPS = 8
#: Floats of so many bytes stay in a first-level cache.
_NEAR_BYTES = 1 << 14

#: A statement, given a row, a vector and a lane.
Statement = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class _Kernel(ABC):
    """What the loop nests have in common.

    Attributes
    ----------
    func : BlockScaled
    tile : RegisterTile
    layout : Layout
    together : int
        Vectors that lie side by side at each step.
    packed : mapping of Var to Var
        The buffers of packed weights in place of the parameters.
    """

    func: BlockScaled
    tile: RegisterTile
    layout: Layout
    together: int
    packed: Mapping[Any, Any]

    def statement(self) -> Any:
        """The parallel loop over all tasks."""
        return parallel("task", self.layout.tiles, self._task)

    @abstractmethod
    def _task(self, task: Any) -> Any:
        """All rows of some vectors of columns."""

    @property
    def _dtype(self) -> str:
        return self.func.contraction.dtype

    @property
    def _steps(self) -> int:
        """Integers that are taken apart together: those of whole words."""
        return max(_STEPS, self.func.count)

    def _buffer(self, name: str, count: int) -> Any:
        return tirx.decl_buffer((count,), self._dtype, name)

    def _place(self, row: Any, vector: Any, lane: Any) -> Any:
        """Where the sum of a row is in a buffer."""
        return (row * self.tile.vectors + vector) * self.tile.lanes + lane

    def _packed(self, load: Any, task: Any, vector: Any, place: Any, lane: Any) -> Any:
        """An element of what is packed."""
        number_of_vector = task * self.tile.vectors + vector
        several, one = number_of_vector // self.together, number_of_vector % self.together
        indices = [several, place, one * self.tile.lanes + lane]
        return tirx.BufferLoad(self.packed[load.source], indices)

    def _integer(self, task: Any, vector: Any, first: Any, step: int, lane: Any) -> Any:
        """The integer so many steps behind the first one of a word, as a float."""
        count = self.func.count
        word = self._packed(self.func.words, task, vector, first // count + step // count, lane)
        return self.func.integer(word, number(step % count))

    def _of_block(self, load: Any, task: Any, vector: Any, block: Any, lane: Any) -> Any:
        """What a block of a column has in common."""
        return self._packed(load, task, vector, block, lane).astype(self._dtype)

    def _data(self, row: Any, place: Any) -> Any:
        """An element of a row of the data."""
        word, part = self.func.contraction.reduced
        values = {
            word.var: place // self.func.count,
            part.var: place % self.func.count,
            **self._row(row),
        }
        return substitute(self.func.contraction.factors[0], values)

    def _row(self, row: Any) -> dict[Any, Any]:
        """The axes of the rows, by the number of one."""
        rows = self.func.rows
        places = unravel(row, [axis.extent for axis in rows])
        return {axis.var: place for axis, place in zip(rows, places, strict=True)}

    def _values(self, task: Any, row: Any, vector: Any, lane: Any) -> dict[Any, Any]:
        """The places of a sum on all spatial axes."""
        column = self.layout.first(task * self.tile.vectors + vector) + lane
        return {self.func.column.var: column, **self._row(row)}

    def _looped(self, task: Any, totals: Any) -> Any:
        """Stores of all rows, whose sums lie in memory, as loops."""
        return looped_stores(
            self.func.contraction,
            self.tile,
            self.func.num_rows,
            lambda *at: totals[self._place(*at)],
            lambda *at: self._values(task, *at),
        )


class FewRows(_Kernel):
    """All rows are one register tile."""

    def _task(self, task: Any) -> Any:
        size = self.func.num_rows * self.tile.vectors * self.tile.lanes
        sums, totals = self._buffer("sums", size * self.tile.chains), self._buffer("totals", size)
        # The sum of a block's data, in all lanes: a scalar would be another chain of additions.
        of_data = self._buffer("of_data", self.func.num_rows * self.tile.lanes)
        shifted = self.func.offset is not None

        def start(*at: Any) -> Any:
            return tirx.BufferStore(totals, self.func.contraction.initial, [self._place(*at)])

        def block(place: Any) -> Any:
            return self._block(task, place, sums, totals, of_data if shifted else None)

        return sequence(
            [
                *map(tirx.AllocBuffer, (sums, totals, *([of_data] if shifted else []))),
                unrolled(self.func.num_rows, self.tile, start),
                for_each("block", self.func.blocks, block),
                *self._writes(task, totals),
            ]
        )

    def _block(self, task: Any, block: Any, sums: Any, totals: Any, of_data: Any) -> Any:
        """Add a block's sums, and what its offset adds, to the totals."""
        func, tile = self.func, self.tile
        zero, size = tirx.const(0, self._dtype), int(totals.shape[0])

        def chains(row: Any, vector: Any, lane: Any) -> list[Any]:
            return [self._place(row, vector, lane) + chain * size for chain in range(tile.chains)]

        def clear(*at: Any) -> Any:
            return sequence(tirx.BufferStore(sums, zero, [place]) for place in chains(*at))

        def steps(group: Any) -> Any:
            first = block * func.size + group * self._steps
            return sequence(step(first, k) for k in range(self._steps))

        def step(first: Any, k: int) -> Any:
            def add(row: Any, vector: Any, lane: Any) -> Any:
                place = chains(row, vector, lane)[k % tile.chains]
                product = self._data(row, first + k) * self._integer(task, vector, first, k, lane)
                return tirx.BufferStore(sums, sums[place] + product, [place])

            def add_data(place: Any, row: Any) -> Any:
                value = of_data[place] + self._data(row, first + k)
                return tirx.BufferStore(of_data, value, [place])

            also = [] if of_data is None else [self._of_rows(add_data)]
            return sequence([unrolled(self.func.num_rows, tile, add), *also])

        def scaled(row: Any, vector: Any, lane: Any) -> Any:
            total = reduce(plus, (sums[place] for place in chains(row, vector, lane)))
            if of_data is not None:
                offset = self._of_block(func.offset, task, vector, block, lane)
                total += offset * of_data[row * tile.lanes + lane]
            total *= self._of_block(func.scale, task, vector, block, lane)
            place = self._place(row, vector, lane)
            return tirx.BufferStore(totals, totals[place] + total, [place])

        def clear_data(place: Any, _: Any) -> Any:
            return tirx.BufferStore(of_data, zero, [place])

        clears = [unrolled(self.func.num_rows, tile, clear)]
        if of_data is not None:
            clears.append(self._of_rows(clear_data))
        additions = for_each("group", func.size // self._steps, steps)
        return sequence([*clears, additions, unrolled(self.func.num_rows, tile, scaled)])

    def _writes(self, task: Any, totals: Any) -> list[Any]:
        if repeats_much(self.func.contraction):
            # A buffer whose indices vary does not stay in registers: the sums shall.
            kept = self._buffer("kept", int(totals.shape[0]))

            def keep(*at: Any) -> Any:
                return tirx.BufferStore(kept, totals[self._place(*at)], [self._place(*at)])

            keeps = unrolled(self.func.num_rows, self.tile, keep)
            return [tirx.AllocBuffer(kept), keeps, self._looped(task, kept)]

        def write(*at: Any) -> Any:
            total, values = totals[self._place(*at)], self._values(task, *at)
            return unrolled_stores(self.func.contraction, total, values)

        return [unrolled(self.func.num_rows, self.tile, write)]

    def _of_rows(self, body: Callable[[Any, Any], Any]) -> Any:
        """``body(place, row)`` for a vector of each row."""
        lanes = self.tile.lanes

        def of_row(row: Any) -> Any:
            first = row * lanes
            return for_each("lane", lanes, lambda lane: body(first + lane, row), ForKind.VECTORIZED)

        return for_each("row", self.func.num_rows, of_row, ForKind.UNROLLED)


class ManyRows(_Kernel):
    """Rows tile by tile, over weights that are floats for as long as they are near."""

    def _task(self, task: Any) -> Any:
        width = self.tile.vectors * self.tile.lanes
        length = self.func.size * self.func.blocks
        near_steps = range(_NEAR_BYTES // width // dtype_bytes(self._dtype), 0, -1)
        steps = next(n for n in near_steps if n % self._steps == length % n == 0)
        totals = self._buffer("totals", self.func.num_rows * width)
        near = self._buffer("near", steps * width)

        def start(*at: Any) -> Any:
            return tirx.BufferStore(totals, self.func.contraction.initial, [self._place(*at)])

        def part(place: Any) -> Any:
            first = place * steps
            widened = self._widened(task, first, steps, near)
            return sequence([widened, self._added(first, steps, near, totals)])

        return sequence(
            [
                *map(tirx.AllocBuffer, (totals, near)),
                self._each_row(start),
                for_each("part", length // steps, part),
                self._looped(task, totals),
            ]
        )

    def _each_row(self, body: Statement) -> Any:
        def of_row(row: Any) -> Any:
            return unrolled(1, self.tile, lambda _, vector, lane: body(row, vector, lane))

        return for_each("row", self.func.num_rows, of_row)

    def _widened(self, task: Any, first: Any, steps: int, near: Any) -> Any:
        """Floats of a part of the columns, ``[step, vector, lane]``."""
        func = self.func

        def several(group: Any) -> Any:
            done = group * self._steps
            block = (first + done) // func.size

            def store(step: int, vector: Any, lane: Any) -> Any:
                value = self._integer(task, vector, first + done, step, lane)
                if func.offset is not None:
                    value += self._of_block(func.offset, task, vector, block, lane)
                value *= self._of_block(func.scale, task, vector, block, lane)
                return tirx.BufferStore(near, value, [self._place(done + step, vector, lane)])

            # Steps lie inside of vectors: one word and what its block has in common are live.
            return unrolled(
                1,
                self.tile,
                lambda _, vector, lane: sequence(
                    store(step, vector, lane) for step in range(self._steps)
                ),
            )

        return for_each("group", steps // self._steps, several)

    def _added(self, first: Any, steps: int, near: Any, totals: Any) -> Any:
        """Add what a part of the columns gives to the totals of all rows."""

        def rows_from(first_row: Any, count: int) -> Any:
            tile = self.tile
            sums = self._buffer("sums", count * tile.vectors * tile.lanes)
            zero = tirx.const(0, self._dtype)

            def clear(*at: Any) -> Any:
                return tirx.BufferStore(sums, zero, [self._place(*at)])

            def step(place: Any) -> Any:
                def add(row: Any, vector: Any, lane: Any) -> Any:
                    at = self._place(row, vector, lane)
                    product = self._data(first_row + row, first + place)
                    product *= near[self._place(place, vector, lane)]
                    return tirx.BufferStore(sums, sums[at] + product, [at])

                return unrolled(count, tile, add)

            def keep(row: Any, vector: Any, lane: Any) -> Any:
                at = self._place(first_row + row, vector, lane)
                total = totals[at] + sums[self._place(row, vector, lane)]
                return tirx.BufferStore(totals, total, [at])

            return sequence(
                [
                    tirx.AllocBuffer(sums),
                    unrolled(count, tile, clear),
                    for_each("step", steps, step),
                    unrolled(count, tile, keep),
                ]
            )

        full, ragged = divmod(self.func.num_rows, self.tile.rows)
        height = self.tile.rows
        tiles = [for_each("rows", full, lambda at: rows_from(at * height, height))]
        if ragged:
            tiles.append(rows_from(number(full * height), ragged))
        return sequence(tiles)
