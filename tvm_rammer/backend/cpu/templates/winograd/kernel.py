"""The loops of a convolution by Winograd's algorithm.

Tiles of the image are numbered through and handled in blocks. For a block and a group of output
channels, ``(m + 2)^2`` matrix products of transformed inputs and packed weights, each in register
tiles, fill a buffer that stays in the second-level cache; the output transform and the epilogue
then take the results from there. The transformed inputs either are a buffer between two stages
(*staged*), or local to the task of a block, which then does all groups of output channels
(*fused*). Where that makes few tasks, they are divided further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.prefetch import SECOND, prefetch
from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution
from tvm_rammer.backend.cpu.templates.winograd.products import register_products
from tvm_rammer.backend.cpu.templates.winograd.tiling import WinogradTiling
from tvm_rammer.backend.cpu.templates.winograd.transforms import (
    grid_of,
    input_transform,
    output_transform,
)
from tvm_rammer.kernel.loops import buffer, loop, number, parallel, sequence, turn_of, when
from tvm_rammer.machine import VDevice

#: So far ahead weights are prefetched that are used once: a page, where the prefetchers of
#: processors stop.
_AHEAD = 4096


def winograd_function(
    conv: PlainConvolution, tiling: WinogradTiling, vdevice: VDevice
) -> tirx.PrimFunc:
    """The PrimFunc whose parallel root loops are the stages.

    Its weights are those that ``tiling.packing`` makes.
    """
    channels = conv.channels
    layout = channels.layout(tiling.register_tile)
    groups = layout.groups * layout.tiles
    shape = (groups, tiling.transform.products, channels.depth, tiling.columns)
    weight = buffer("weight", shape)
    params = list(conv.params)
    params[conv.weight_position] = weight
    tiles = grid_of(conv, tiling).num_tiles
    far_data = tiling.scratch_bytes(tiles, channels.inputs) > vdevice.l2_bytes
    far_weights = 4 * prod(shape) > vdevice.l2_bytes
    kernel = _Kernel(conv, tiling, weight, far_weights, far_data, groups, tiles)
    body = kernel.fused() if tiling.fused else kernel.staged()
    attributes = {"global_symbol": "main", "tirx.noalias": True, "s_tir": True}
    return tirx.PrimFunc(params, body).with_attrs(attributes)


#: An element of a matrix; one of the weights, perhaps of a later product.
Read = Callable[[Any, Any], Any]
Weight = Callable[..., Any]


@dataclass(frozen=True)
class _Share:
    """A group of output channels, and which of its and the block's parts a task does."""

    group: Any
    down: Any
    across: Any


@dataclass(frozen=True)
class _Kernel:
    conv: PlainConvolution
    tiling: WinogradTiling
    weight: Any
    far_weights: bool
    far_data: bool
    groups: int
    num_tiles: int

    @property
    def num_blocks(self) -> int:
        return -(-self.num_tiles // self.tiling.block)

    def staged(self) -> Any:
        """One stage of input transforms, one of everything else."""
        block, moved = self.tiling.block, self._moved(self.num_blocks)

        def transform(tile: Any) -> Any:
            return self._input_tile(moved, tile // block, tile % block, tile)

        down, across = self.tiling.parts
        rows, columns = self.num_blocks * down, self.groups * across

        def compute(task: Any) -> Any:
            if self.tiling.rows_first:
                row, column = task // columns, task % columns
            else:
                row, column = task % rows, task // rows
            which = row // down
            return self._group(
                moved, which, which, _Share(column // across, row % down, column % across)
            )

        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(moved),
                parallel("tile", min(self._transformed(), self.num_blocks * block), transform),
                parallel("task", rows * columns, compute),
            ]
        )

    def fused(self) -> Any:
        """One stage; a task is a block."""
        only = number(0)

        def task(block: Any) -> Any:
            moved = self._moved(1)
            first = block * self.tiling.block

            def transform(tile: Any) -> Any:
                made = self._input_tile(moved, only, tile, first + tile)
                return self._if_any(first + tile, made, self._transformed())

            def compute(group: Any) -> Any:
                return self._group(moved, only, block, _Share(group, only, only))

            return tirx.SeqStmt(
                [
                    tirx.AllocBuffer(moved),
                    loop("tile", self.tiling.block, transform),
                    loop("group", self.groups, compute),
                ]
            )

        return parallel("block", self.num_blocks, task)

    def _moved(self, blocks: int) -> Any:
        """The buffer of transformed inputs.

        The odd vector at the end keeps the values of one tile, which are stored together, out of
        each other's cache set.
        """
        row = self.tiling.block * self.conv.channels.inputs + self.tiling.lanes
        return buffer("moved", (blocks, self.tiling.transform.products, row))

    def _transformed(self) -> int:
        """Tiles whose inputs are transformed: also those that fill the last register tile."""
        rows = self.tiling.register_tile.rows
        return -(-self.num_tiles // rows) * rows if self.num_blocks > 1 else self.num_tiles

    def _if_any(self, tile: Any, statement: Any, count: int) -> Any:
        """Only if there is such a tile: the last block may have fewer."""
        return when([tile < count] if count % self.tiling.block else [], statement)

    def _input_tile(self, moved: Any, block: Any, place: Any, tile: Any) -> Any:
        side = self.tiling.transform.inputs
        patch = buffer("patch", (side, side, self.tiling.lanes))

        def write(y: Any, x: Any, channel: Any, value: Any) -> Any:
            element = place * self.conv.channels.inputs + channel
            return tirx.BufferStore(moved, value, [block, y * side + x, element])

        made = input_transform(self.conv, self.tiling, tile, patch, write)
        return sequence([tirx.AllocBuffer(patch), made])

    def _group(self, moved: Any, where: Any, block: Any, share: _Share) -> Any:
        """A share of a block and a group of output channels."""
        tiling, tile = self.tiling, self.tiling.task_tile
        transform, columns = tiling.transform, tile.vectors * tile.lanes
        products = buffer("products", (tiling.rows, transform.products, columns))
        patch = buffer("patch", (transform.outputs, transform.inputs, tile.lanes))
        above = share.down * tiling.rows
        first = block * tiling.block + above
        channel, part = share.across * columns, share.across * tile.vectors
        channels = self.conv.channels
        layout = channels.layout(tiling.register_tile)
        start = layout.column(share.group, part)
        full, ragged = divmod(tiling.rows, tile.rows)

        def product(which: Any) -> Any:
            def data(row: Any, inner: Any) -> Any:
                element = (above + row) * channels.inputs + channels.input(start, inner)
                return moved[where, which, element]

            def weight(inner: Any, column: Any, later: int = 0) -> Any:
                return self.weight[share.group, which + later, inner, channel + column]

            def rows(start: Any, count: int) -> Any:
                made = self._rows(data, weight, products, which, start, count)
                return self._if_any(first + start, made, self.num_tiles)

            parts = []
            if full:
                parts.append(loop("rows", full, lambda row: rows(row * tile.rows, tile.rows)))
            if ragged:
                parts.append(rows(number(full * tile.rows), ragged))
            return sequence(parts)

        def inverse(tile: Any) -> Any:
            def read(y: Any, x: Any, channel: Any) -> Any:
                return products[tile, y * transform.inputs + x, channel]

            made = output_transform(
                self.conv,
                tiling,
                first + tile,
                lambda vector: layout.column(share.group, part + vector),
                patch,
                read,
            )
            return self._if_any(first + tile, made, self.num_tiles)

        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(products),
                tirx.AllocBuffer(patch),
                loop("product", transform.products, product),
                loop("tile", tiling.rows, inverse),
            ]
        )

    def _rows(
        self, data: Read, weight: Weight, products: Any, which: Any, first: Any, count: int
    ) -> Any:
        """A register tile of one of the products: every sum is a vector of its own."""
        tile = self.tiling.task_tile

        def keep(row: Any, column: Any, value: Any) -> Any:
            return tirx.BufferStore(products, value, [first + row, which, column])

        def ahead(channel: Any) -> list[Any]:
            if not self.far_weights:
                return []
            passes = -(-self.tiling.rows // tile.rows)
            if passes > 1:
                # The register tiles share those of the next product, so that memory never rests.
                each = -(-tile.vectors // passes)
                turns = [(first // tile.rows * each + k) % tile.vectors for k in range(each)]
                lines = [weight(channel, turn * tile.lanes, later=1) for turn in turns]
                return [prefetch(line, level=SECOND) for line in lines]
            steps = _AHEAD // (4 * self.tiling.columns)
            columns = range(0, tile.vectors * tile.lanes, tile.lanes)
            return [prefetch(weight(channel + steps, number(column))) for column in columns]

        def next_rows(channel: Any) -> list[Any]:
            # The prefetchers of processors need a start of their own for each of the short rows.
            if not self.far_data:
                return []
            row = first + count + turn_of(channel, count)
            return [prefetch(data(row, channel), level=SECOND)]

        return register_products(
            tile,
            count,
            (self.conv.channels.depth,),
            lambda row, channel: data(first + row, channel),
            lambda column, channel: weight(channel, column),
            keep,
            lambda channel: [*ahead(channel), *next_rows(channel)],
        )
