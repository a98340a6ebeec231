"""Products with weights of a few bits, and scales for the blocks of their columns.

Of few rows they wait for their weights, which are half a byte each instead of four. A task is some
vectors of columns, for all rows: together in registers if they fit, else tile by tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.block_scaled_kernels import FewRows, ManyRows
from tvm_rammer.backend.cpu.templates.columns import Layout, PackColumns
from tvm_rammer.backend.cpu.templates.finer import VERY_LARGE_DEVICE, Option, finer_tilings
from tvm_rammer.backend.cpu.templates.register_tile import (
    RegisterTile,
    cycles_of_step,
    operation_cycles,
    tiles_in_registers,
)
from tvm_rammer.kernel.block_scaled import BlockScaled
from tvm_rammer.kernel.blocks import parameter_number
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice

#: Instructions that make floats of integers: of bytes, and of parts of words.
_WIDENING = {8: 2, 4: 3, 2: 3}
#: Those besides that scale a float, and keep it.
_KEEPING = 3


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

    def tiles(self) -> list[RegisterTile]:
        """All tiles: those of all rows, if there are any.

        The sums of a single row are chains, which hide some of their latency.
        """
        columns, steps = self.func.column.extent, self.func.size * self.func.blocks
        found = tiles_in_registers(self.func.num_rows, columns, self.vdevice, steps=steps)
        lanes = max((tile.lanes for tile in found), default=0)
        chains = max((tile.chains for tile in found if tile.chains <= 2), default=0)
        chains = chains if self.func.num_rows == 1 else 1
        found = [tile for tile in found if (tile.lanes, tile.chains) == (lanes, chains)]
        return [tile for tile in found if tile.rows == self.func.num_rows] or found

    def option(self, tile: RegisterTile) -> Option[RegisterTile]:
        """Its tasks, and the modelled cycles of each."""
        core, func = self.vdevice.speeds.cycles, self.func
        each = operation_cycles(tile.lanes * 4, self.vdevice)
        widening = _WIDENING[func.bits] * tile.vectors * each
        if tile.rows == self.func.num_rows:
            operations = tile.vectors * tile.rows * each + widening
            step = max(operations, core.multiply_add_latency / tile.chains)
        else:
            widening += _KEEPING * tile.vectors * each
            step = cycles_of_step(tile, self.func.num_rows, self.vdevice) + widening
        streamed = tile.vectors * tile.lanes * func.nbytes / self.vdevice.speeds.cache_bytes
        cycles = max(step, streamed) * func.size * func.blocks + core.task
        return Option(tile, self.layout(tile).tiles, cycles)

    def layout(self, tile: RegisterTile) -> Layout:
        """How columns become vectors."""
        columns = self.func.column.extent
        return Layout(columns, columns, tile.vectors, tile.lanes)

    @cached_property
    def space(self) -> list[RegisterTile]:
        """All tiles, the one first that takes the fewest cycles in all."""
        options = {tile: self.option(tile) for tile in self.tiles()}
        return sorted(options, key=lambda tile: options[tile].cost(1))

    def together(self, tile: RegisterTile) -> int:
        """How many vectors lie side by side at each step: memory is read from end to end.

        Those of the most efficient tile, if smaller ones are to share them. One where vectors
        overlap.
        """
        usual = self.space[0].vectors
        count = usual if usual % tile.vectors == 0 else tile.vectors
        return count if self.func.column.extent % (count * tile.lanes) == 0 else 1

    def packing(self, tile: RegisterTile) -> PackColumns:
        """How weights are laid out for a tile: ``[vectors, step, lane]``."""
        together, layout = self.together(tile), self.layout(tile)
        if together > 1:
            layout = replace(layout, vectors=1, lanes=together * tile.lanes)
        return PackColumns((1, 0), 0, layout.as_packed())


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
        return found.space

    def usual(self, found: FewBitsProduct) -> Sequence[RegisterTile]:
        """The most efficient tile and finer ones with the same packed weights."""
        if not found.space:
            return []
        efficient, *others = map(found.option, found.space)
        alike = found.packing(efficient.tiling)
        finer = [
            option
            for option in others
            if option.num_tiles > efficient.num_tiles and found.packing(option.tiling) == alike
        ]
        count = found.vdevice.num_veus
        return [efficient.tiling, *finer_tilings(efficient, finer, count, VERY_LARGE_DEVICE)]

    def emit(self, found: FewBitsProduct, configuration: RegisterTile) -> Scheduled:
        """One register tile."""
        packing = found.packing(configuration)
        func = found.func.contraction.func
        params, packed = list(func.params), {}
        for position, load in found.constants.items():
            source = load.source
            shape = packing.shape(tuple(int(extent) for extent in source.shape))
            packed[source] = tirx.decl_buffer(shape, str(source.dtype), str(source.name))
            params[position] = packed[source]
        kernel = FewRows if configuration.rows == found.func.num_rows else ManyRows
        layout, together = found.layout(configuration), found.together(configuration)
        body = kernel(found.func, configuration, layout, together, packed).statement()
        made = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
        packings = tuple((position, packing) for position in found.constants)
        words = f"{configuration}, {found.func.bits} bits"
        return Scheduled(made, self.name, words, packings)

    def rounding(self, configuration: RegisterTile) -> tuple[int]:
        """Other chains of sums round in another order."""
        return (configuration.chains,)
