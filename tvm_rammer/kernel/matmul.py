"""Matrix products: a register tile of rows x vectors, the reduction innermost.

The tile is an outer product: one row element is broadcast against ``vectors`` weight vectors and
accumulated in registers over the whole reduction, so that every weight is loaded once per row tile.
Constant weights are packed so that these vectors are contiguous. A product with one row is bound by
memory and wants several weight streams instead of several rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.kernel.blocks import (
    extent,
    multiply_accumulate,
    only_reduction,
    parameter_number,
    read_number,
    schedule_of,
    spatial_axes,
    split_loops,
    variables,
)
from tvm_rammer.kernel.register_tile import RegisterTile, register_tile
from tvm_rammer.kernel.scheduled import Packing, Scheduled, SplitAxis
from tvm_rammer.vdevice import VDevice


@dataclass(frozen=True)
class Matmul:
    """Schedules ``c[.., i, j] += a[.., i, k] * b[.., k, j]`` with an element-wise epilogue."""

    name: str = "matmul"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        sch = schedule_of(func)
        found = only_reduction(sch)
        if found is None:
            return None
        blocks, number = found
        product = blocks[number]
        spatial, reduced = split_loops(sch, product)
        loads = multiply_accumulate(sch, product)
        if loads is None or len(reduced) != 1 or not spatial:
            return None
        weight = _weight(sch, product, loads)
        if weight is None:
            return None
        columns = extent(sch, spatial[-1])
        row_loop = _row_loop(sch, product, spatial, weight)
        rows = extent(sch, row_loop) if row_loop is not None else 1
        tile = register_tile(rows, columns, vdevice)
        if tile is None:
            return None
        position = parameter_number(sch, weight.source)
        packings = _pack(sch, product, weight, position, constants, tile)
        if packings is None:
            return None
        _tile_loops(sch, blocks, number, spatial, reduced[0], row_loop, tile)
        return Scheduled(sch.mod["main"], self.name, str(tile), packings)


def _weight(sch: s_tir.Schedule, product: Any, loads: tuple[Any, Any]) -> Any | None:
    """The load that runs along the last spatial axis, if the other load does not."""
    axes = spatial_axes(sch, product)
    along = [load for load in loads if axes[-1] in variables(load.indices)]
    return along[0] if len(along) == 1 else None


def _row_loop(sch: s_tir.Schedule, product: Any, spatial: list[Any], weight: Any) -> Any | None:
    """The innermost spatial loop, other than the columns, along which the weight is reused."""
    axes = spatial_axes(sch, product)
    used = variables(weight.indices)
    for loop, axis in reversed(list(zip(spatial[:-1], axes[:-1], strict=True))):
        if axis not in used:
            return loop
    return None


def _pack(
    sch: s_tir.Schedule,
    product: Any,
    weight: Any,
    position: int | None,
    constants: frozenset[int],
    tile: RegisterTile,
) -> tuple[tuple[int, Packing], ...] | None:
    """Pack a constant weight; ``None`` when its vectors would not be contiguous."""
    axes = spatial_axes(sch, product)
    plain = all(isinstance(index, tirx.Var) for index in weight.indices)
    if plain and position in constants and len(weight.indices) == 2:
        axis = next(k for k, index in enumerate(weight.indices) if index.same_as(axes[-1]))
        packing = SplitAxis(axis, tile.lanes)
        read = ("read", read_number(sch, product, weight.source))
        sch.transform_layout(product, read, packing.index_map, assume_injective_transform=True)
        return ((position, packing),)
    contiguous = isinstance(weight.indices[-1], tirx.Var) and weight.indices[-1].same_as(axes[-1])
    return () if contiguous else None


def _tile_loops(
    sch: s_tir.Schedule,
    blocks: list[Any],
    number: int,
    spatial: list[Any],
    reduction: Any,
    row_loop: Any | None,
    tile: RegisterTile,
) -> None:
    before, product, after = blocks[:number], blocks[number], blocks[number + 1 :]
    for block in before + after[:-1]:
        sch.compute_inline(block)
    out = after[-1] if after else sch.cache_write(product, 0, "global")
    outer = [loop for loop in spatial[:-1] if row_loop is None or loop is not row_loop]
    column_tile, vector, lane = sch.split(spatial[-1], [None, tile.vectors, tile.lanes])
    order = [*outer, column_tile]
    inner = [vector, lane]
    if row_loop is not None:
        row_tile, row = sch.split(row_loop, [None, tile.rows])
        order.append(row_tile)
        inner.insert(0, row)
        sch.reorder(*order, reduction, *inner)
        sch.unroll(row)
    else:
        sch.reorder(*order, reduction, *inner)
    tiles = sch.fuse(*order)
    sch.parallel(tiles)
    sch.reverse_compute_at(out, tiles)
    sch.vectorize(lane)
    sch.unroll(vector)
    _vectorise_epilogue(sch, out, tile)
    sch.decompose_reduction(product, reduction)


def _vectorise_epilogue(sch: s_tir.Schedule, out: Any, tile: RegisterTile) -> None:
    loops = sch.get_loops(out)[1:]
    vectors, lane = sch.split(loops[-1], [None, tile.lanes])
    sch.vectorize(lane)
    for loop in [*loops[:-1], vectors]:
        sch.unroll(loop)
