"""Products of few rows with weights of a few bits, and scales for the blocks of their columns.

They wait for their weights, which are half a byte each instead of four. A tile is some vectors of
columns: a vector of words is several vectors of integers, which shifts take apart in registers. The
sums of a block are scaled once, and a block's offset is multiplied by the sum of its data, which
all vectors of a tile have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import add as plus
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.backend.cpu.templates.columns import Layout, PackColumns
from tvm_rammer.backend.cpu.templates.finer import VERY_LARGE_DEVICE, Option, finer_tilings
from tvm_rammer.backend.cpu.templates.register_tile import (
    RegisterTile,
    operation_cycles,
    tiles_in_registers,
)
from tvm_rammer.backend.cpu.templates.repeated_results import (
    looped_stores,
    repeats_much,
    unrolled_stores,
)
from tvm_rammer.kernel.block_scaled import BlockScaled
from tvm_rammer.kernel.blocks import parameter_number
from tvm_rammer.kernel.loops import for_each, number, parallel, sequence, unravel
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice

#: Steps of the innermost loop's body.
_STEPS = 8
#: Instructions that make floats of integers: of bytes, and of parts of words.
_WIDENING = {8: 2, 4: 3, 2: 3}


@dataclass(frozen=True)
class FewBitsProduct:
    """A product on a device.

    Attributes
    ----------
    func : BlockScaled
    constants : dict of int to TensorLoad
        What is packed, by the numbers of the parameters.
    vdevice : VDevice
    """

    func: BlockScaled
    constants: dict[int, Any]
    vdevice: VDevice

    @property
    def rows(self) -> int:
        """How many there are."""
        return prod(axis.extent for axis in self.func.rows)

    def tiles(self) -> list[RegisterTile]:
        """All tiles; the sums of a single row are chains, which hide some of their latency."""
        columns, steps = self.func.column.extent, self.func.size * self.func.blocks
        found = tiles_in_registers(self.rows, columns, self.vdevice, steps=steps)
        found = [tile for tile in found if tile.chains <= (2 if self.rows == 1 else 1)]
        most = max(((tile.rows, tile.lanes, tile.chains) for tile in found), default=None)
        return [tile for tile in found if (tile.rows, tile.lanes, tile.chains) == most]

    def option(self, tile: RegisterTile) -> Option[RegisterTile]:
        """Its tasks, and the modelled cycles of each."""
        core, func = self.vdevice.speeds.cycles, self.func
        each = operation_cycles(tile.lanes * 4, self.vdevice)
        operations = tile.vectors * (tile.rows + _WIDENING[func.bits]) * each
        streamed = tile.vectors * tile.lanes * func.nbytes / self.vdevice.speeds.cache_bytes
        step = max(operations, core.multiply_add_latency / tile.chains, streamed)
        cycles = step * func.size * func.blocks * -(-self.rows // tile.rows) + core.task
        return Option(tile, self.layout(tile).tiles, cycles)

    def layout(self, tile: RegisterTile) -> Layout:
        """How columns become vectors."""
        columns = self.func.column.extent
        return Layout(columns, columns, tile.vectors, tile.lanes)


@dataclass(frozen=True)
class FewBitsRule(Template[FewBitsProduct, RegisterTile]):
    """Schedules what :class:`.NarrowWeights` makes of weights in blocks, with an epilogue."""

    name: str = "few bits"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> FewBitsProduct | None:
        """As in :meth:`.Template.match`."""
        found = BlockScaled.of(func)
        if found is None:
            return None
        weights = [load for load in (found.words, found.scale, found.offset) if load is not None]
        numbers = [parameter_number(found.contraction.func, load.source) for load in weights]
        packed = {n: load for n, load in zip(numbers, weights, strict=True) if n in constants}
        return FewBitsProduct(found, packed, vdevice) if len(packed) == len(weights) else None

    def space(self, found: FewBitsProduct) -> Sequence[RegisterTile]:
        """The tile that takes the fewest cycles in all, and then the others."""
        options = {tile: found.option(tile) for tile in found.tiles()}
        return sorted(options, key=lambda tile: options[tile].cost(1))

    def usual(self, found: FewBitsProduct) -> Sequence[RegisterTile]:
        """The most efficient tile and finer ones with the same packed weights."""
        space = self.space(found)
        if not space:
            return []
        efficient, options = space[0], [found.option(tile) for tile in space]
        alike = found.layout(efficient).as_packed()
        finer = [
            option
            for option in options
            if option.num_tiles > options[0].num_tiles
            and found.layout(option.tiling).as_packed() == alike
        ]
        count = found.vdevice.num_veus
        return [efficient, *finer_tilings(options[0], finer, count, VERY_LARGE_DEVICE)]

    def emit(self, found: FewBitsProduct, configuration: RegisterTile) -> Scheduled:
        """One register tile."""
        packing = PackColumns((1, 0), 0, found.layout(configuration).as_packed())
        func = found.func.contraction.func
        params, packed = list(func.params), {}
        for position, load in found.constants.items():
            source = load.source
            shape = packing.shape(tuple(int(extent) for extent in source.shape))
            packed[source] = tirx.decl_buffer(shape, str(source.dtype), str(source.name))
            params[position] = packed[source]
        body = _Kernel(found, configuration, packed).statement()
        made = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
        packings = tuple((position, packing) for position in found.constants)
        words = f"{configuration}, {found.func.bits} bits"
        return Scheduled(made, self.name, words, packings)

    def rounding(self, configuration: RegisterTile) -> tuple[int]:
        """Other chains of sums round in another order."""
        return (configuration.chains,)


class _Kernel:
    """The loop nest of a configuration; ``packed`` has the buffers in place of the parameters."""

    def __init__(self, found: FewBitsProduct, tile: RegisterTile, packed: dict[Any, Any]) -> None:
        self.found, self.func, self.tile = found, found.func, tile
        self.layout, self.packed = found.layout(tile), packed
        self.dtype = found.func.contraction.dtype

    def statement(self) -> Any:
        """The parallel loop over all tasks."""
        return parallel("task", self.layout.tiles, self._task)

    def _task(self, task: Any) -> Any:
        full, ragged = divmod(self.found.rows, self.tile.rows)
        parts = []
        if full:
            step = self.tile.rows
            parts.append(for_each("rows", full, lambda at: self._tile(task, at * step, step)))
        if ragged:
            parts.append(self._tile(task, number(full * self.tile.rows), ragged))
        return sequence(parts)

    def _tile(self, task: Any, first_row: Any, rows: int) -> Any:
        func, tile = self.func, replace(self.tile, rows=rows)
        size = rows * tile.vectors * tile.lanes
        sums, totals = (
            tirx.decl_buffer((count,), self.dtype, name)
            for count, name in ((size * tile.chains, "sums"), (size, "totals"))
        )
        # The sum of a block's data, in all lanes: a scalar would be another chain of additions.
        of_data = tirx.decl_buffer((rows * tile.lanes,), self.dtype, "of_data")
        zero = tirx.const(0, self.dtype)

        def place(row: Any, vector: Any, lane: Any) -> Any:
            return (row * tile.vectors + vector) * tile.lanes + lane

        def chains(at: Any) -> list[Any]:
            return [at + chain * size for chain in range(tile.chains)]

        def start(row: Any, vector: Any, lane: Any) -> Any:
            initial = func.contraction.initial
            return tirx.BufferStore(totals, initial, [place(row, vector, lane)])

        def clear(row: Any, vector: Any, lane: Any) -> Any:
            places = chains(place(row, vector, lane))
            return sequence(tirx.BufferStore(sums, zero, [at]) for at in places)

        def block(number_of_block: Any) -> Any:
            def scaled(row: Any, vector: Any, lane: Any) -> Any:
                at = place(row, vector, lane)
                total = reduce(plus, (sums[each] for each in chains(at)))
                if func.offset is not None:
                    offset = self._packed(func.offset, task, vector, number_of_block, lane)
                    total += offset.astype(self.dtype) * of_data[row * tile.lanes + lane]
                scale = self._packed(func.scale, task, vector, number_of_block, lane)
                total = totals[at] + total * scale.astype(self.dtype)
                return tirx.BufferStore(totals, total, [at])

            clears = [_unrolled(tile, clear)]
            if func.offset is not None:
                clears.append(
                    self._of_rows(rows, lambda at, _: tirx.BufferStore(of_data, zero, [at]))
                )
            steps = max(_STEPS, func.count)

            def several(group: Any) -> Any:
                first = number_of_block * func.size + group * steps
                return sequence(step(first, k) for k in range(steps))

            def step(first: Any, k: int) -> Any:
                word = first // func.count + k // func.count

                def add(row: Any, vector: Any, lane: Any) -> Any:
                    at = place(row, vector, lane) + k % tile.chains * size
                    integer = func.integer(
                        self._packed(func.words, task, vector, word, lane),
                        number(k % func.count),
                    )
                    data = self._data(first_row + row, first + k)
                    return tirx.BufferStore(sums, sums[at] + data * integer, [at])

                def add_data(at: Any, row: Any) -> Any:
                    data = self._data(first_row + row, first + k)
                    return tirx.BufferStore(of_data, of_data[at] + data, [at])

                of_rows = [] if func.offset is None else [self._of_rows(rows, add_data)]
                return sequence([_unrolled(tile, add), *of_rows])

            additions = for_each("group", func.size // steps, several)
            return sequence([*clears, additions, _unrolled(tile, scaled)])

        def values(row: Any, vector: Any, lane: Any) -> dict[Any, Any]:
            column = self.layout.first(task * tile.vectors + vector) + lane
            return {func.column.var: column, **self._row(first_row + row)}

        def write(row: Any, vector: Any, lane: Any) -> Any:
            total = totals[place(row, vector, lane)]
            return unrolled_stores(func.contraction, total, values(row, vector, lane))

        def writes() -> list[Any]:
            if not repeats_much(func.contraction):
                return [_unrolled(tile, write)]
            # A buffer whose indices vary does not stay in registers: the sums shall.
            kept = tirx.decl_buffer((size,), self.dtype, "kept")

            def keep(*at: Any) -> Any:
                return tirx.BufferStore(kept, totals[place(*at)], [place(*at)])

            def total(*at: Any) -> Any:
                return kept[place(*at)]

            stores = looped_stores(func.contraction, tile, rows, total, values)
            return [tirx.AllocBuffer(kept), _unrolled(tile, keep), stores]

        return sequence(
            [
                tirx.AllocBuffer(sums),
                tirx.AllocBuffer(totals),
                *([] if func.offset is None else [tirx.AllocBuffer(of_data)]),
                _unrolled(tile, start),
                for_each("block", func.blocks, block),
                *writes(),
            ]
        )

    def _of_rows(self, rows: int, body: Callable[[Any, Any], Any]) -> Any:
        """``body(place, row)`` for a vector of each row."""
        lanes = self.tile.lanes

        def lanes_of(row: Any) -> Any:
            at = row * lanes
            return for_each("lane", lanes, lambda lane: body(at + lane, row), ForKind.VECTORIZED)

        return for_each("row", rows, lanes_of, ForKind.UNROLLED)

    def _packed(self, load: Any, task: Any, vector: Any, place: Any, lane: Any) -> Any:
        """An element of what is packed."""
        indices = [task * self.tile.vectors + vector, place, lane]
        return tirx.BufferLoad(self.packed[load.source], indices)

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


def _unrolled(tile: RegisterTile, body: Callable[[Any, Any, Any], Any]) -> Any:
    """``body(row, vector, lane)`` for all of a register tile, without a loop that is left."""

    def lanes(row: Any, vector: Any) -> Any:
        return for_each(
            "lane", tile.lanes, lambda lane: body(row, vector, lane), ForKind.VECTORIZED
        )

    def vectors(row: Any) -> Any:
        return for_each("vector", tile.vectors, lambda vector: lanes(row, vector), ForKind.UNROLLED)

    return for_each("row", tile.rows, vectors, ForKind.UNROLLED)
