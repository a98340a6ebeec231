"""Convolutions in NHWC: an outer product of pixels and output-channel vectors in registers.

A tile is one row of output pixels for a few vectors of output channels. In its inner loop every
input element is broadcast against packed weight vectors, so the layout of the input does not matter
and padding can be a condition inside (KERNELS: 86 to 99 % of a core's peak without tuning). The
order of the three innermost loops does matter: pixels outside of vectors keep one broadcast and few
weights live; the other way round LLVM keeps the broadcasts and spills.
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
)
from tvm_rammer.kernel.register_tile import RegisterTile, register_tile
from tvm_rammer.kernel.scheduled import Scheduled, SplitAxis
from tvm_rammer.vdevice import VDevice


@dataclass(frozen=True)
class Convolution:
    """Schedules ``out[n, y, x, o] += in[n, y', x', i] * weight[o, ky, kx, i]`` and its epilogue."""

    name: str = "convolution"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        sch = schedule_of(func)
        found = only_reduction(sch)
        if found is None:
            return None
        blocks, number = found
        conv = blocks[number]
        spatial, reduced = split_loops(sch, conv)
        loads = multiply_accumulate(sch, conv)
        if loads is None or len(spatial) != 4 or len(reduced) != 3:
            return None
        weight = loads[1]
        position = parameter_number(sch, weight.source)
        if position not in constants or not _by_channel(sch, conv, weight):
            return None
        group = _channels_of_a_group(sch, spatial[3], loads[0], weight, func)
        tile = register_tile(extent(sch, spatial[2]), group, vdevice) if group else None
        if tile is None:
            return None
        packing = SplitAxis(0, tile.lanes)
        read = ("read", read_number(sch, conv, weight.source))
        sch.transform_layout(conv, read, packing.index_map, assume_injective_transform=True)
        _schedule(sch, blocks, number, spatial, reduced, tile)
        return Scheduled(sch.mod["main"], self.name, str(tile), ((position, packing),))


def _by_channel(sch: s_tir.Schedule, conv: Any, weight: Any) -> bool:
    """Whether the first axis of the weights is the output channel."""
    return len(weight.indices) == 4 and bool(weight.indices[0].same_as(spatial_axes(sch, conv)[-1]))


def _channels_of_a_group(
    sch: s_tir.Schedule, channels: Any, data: Any, weight: Any, func: tirx.PrimFunc
) -> int | None:
    """Output channels that read the same input channels, ``None`` when that cannot be seen."""
    out_channels = extent(sch, channels)
    in_channels = int(data.source.shape[-1])
    per_group = int(weight.source.shape[-1])
    if per_group == 0 or in_channels % per_group:
        return None
    groups = in_channels // per_group
    return out_channels // groups if out_channels % groups == 0 else None


def _schedule(
    sch: s_tir.Schedule,
    blocks: list[Any],
    number: int,
    spatial: list[Any],
    reduced: list[Any],
    tile: RegisterTile,
) -> None:
    conv, before, after = blocks[number], blocks[:number], blocks[number + 1 :]
    for block in after[:-1]:
        sch.compute_inline(block)
    out = after[-1] if after else sch.cache_write(conv, 0, "global")
    batch, y, x, channel = spatial
    channel_tile, vector, lane = sch.split(channel, [None, tile.vectors, tile.lanes])
    x_tile, pixel = sch.split(x, [None, tile.rows])
    sch.reorder(batch, channel_tile, y, x_tile, *reduced, pixel, vector, lane)
    tiles = sch.fuse(batch, channel_tile, y)
    sch.parallel(tiles)
    sch.reverse_compute_at(out, x_tile)
    sch.vectorize(lane)
    sch.unroll(pixel)
    sch.unroll(vector)
    *_, out_pixel, out_channel = sch.get_loops(out)
    out_vector, out_lane = sch.split(out_channel, [None, tile.lanes])
    sch.vectorize(out_lane)
    sch.unroll(out_vector)
    sch.unroll(out_pixel)
    for block in before:
        sch.compute_inline(block)
    sch.decompose_reduction(conv, reduced[0])
