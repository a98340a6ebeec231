"""Whether Winograd's algorithm pays for a convolution, and in which tiles: a model in cycles.

Counted are the multiply-adds of the products in their register tiles, the two transforms, and the
bytes that come from memory: the weights, of which there are up to four times as many as before, and
transformed inputs that no cache holds. What counts is the ratio to the direct convolution, and
gains are large where there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tvm_rammer.backend.cpu.templates.finer import VERY_LARGE_DEVICE, Option, finer_tilings
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile, overlapping_lanes
from tvm_rammer.backend.cpu.templates.winograd.accuracy import winograd_error
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.backend.cpu.templates.winograd.cycles import (
    MANY_ROWS,
    between_stages,
    direct_cycles,
    from_shared_cache,
    per_operation,
    step_cycles,
    together,
    weight_cycles,
)
from tvm_rammer.backend.cpu.templates.winograd.matrices import FOUR, TWO, Transform
from tvm_rammer.backend.cpu.templates.winograd.products import register_tiles
from tvm_rammer.backend.cpu.templates.winograd.tiling import TileGrid, WinogradTiling
from tvm_rammer.machine import VDevice

#: Winograd is taken if it needs at most this part of the direct convolution's cycles.
WORTHWHILE = 0.9
#: Larger buffers of transformed inputs are refused.
MAX_SCRATCH_BYTES = 32 << 20
#: Tiles of the image in a block, about: few enough for the second-level cache.
_BLOCK = 14
#: Fewer blocks than this would not occupy the vEUs evenly if each was one task.
_FUSED_BLOCKS = 8
#: How many bytes of weights that all share are read while one is read of another vEU's cache.
_CROSSING = 3
#: Vector operations per product of a tile: transforms of the input and of the output.
_INPUT_OPERATIONS, _OUTPUT_OPERATIONS = 7.0, 4.0


@dataclass(frozen=True)
class ConvolutionSize:
    """Batch, height and width of the results, and the channels."""

    batch: int
    height: int
    width: int
    channels: Channels


def choose_tiling(
    size: ConvolutionSize, vdevice: VDevice, tolerance: float
) -> WinogradTiling | None:
    """The tiling with the fewest modelled cycles, ``None`` if a direct convolution is as good."""
    channels = size.channels
    lanes = _lanes(size, vdevice)
    if lanes is None:
        return None
    tilings = [
        tiling
        for transform in (TWO, FOUR)
        for tiling in _tilings(size, transform, lanes, vdevice)
        if _scratch_bytes(size, tiling) <= MAX_SCRATCH_BYTES
    ]
    outputs = size.batch * size.height * size.width
    limit = WORTHWHILE * direct_cycles(outputs, 9, channels, vdevice)
    for tiling in sorted(tilings, key=lambda tiling: winograd_cycles(size, tiling, vdevice)):
        if winograd_cycles(size, tiling, vdevice) > limit:
            return None
        if winograd_error(tiling.transform, channels.depth) <= tolerance:
            return tiling
    return None


def all_tilings(
    size: ConvolutionSize, vdevice: VDevice, tolerance: float
) -> Iterator[WinogradTiling]:
    """Every tiling that is accurate enough, whether it pays by the model or not."""
    channels = size.channels
    lanes = _lanes(size, vdevice)
    if lanes is None:
        return
    for transform in (TWO, FOUR):
        if winograd_error(transform, channels.depth) > tolerance:
            continue
        tiles = _grid(size, transform).num_tiles
        for register in register_tiles(tiles, channels.width, vdevice):
            usual = _block(size, transform, register, vdevice)
            for block in sorted({usual, min(tiles, 2 * usual), min(tiles, 4 * usual)}):
                staged = WinogradTiling(transform, lanes, register, block, False)
                if _scratch_bytes(size, staged) <= MAX_SCRATCH_BYTES:
                    yield staged
                    yield replace(staged, rows_first=True)
                yield replace(staged, fused=True)


def winograd_cycles(size: ConvolutionSize, tiling: WinogradTiling, vdevice: VDevice) -> float:
    """Modelled cycles of a tiling on one vEU."""
    transform, register = tiling.transform, tiling.register_tile
    tiles = _grid(size, transform).num_tiles
    vectors_in = -(-size.channels.inputs // tiling.lanes)
    vectors_out = size.channels.layout(register).total
    operations = _INPUT_OPERATIONS * vectors_in + _OUTPUT_OPERATIONS * vectors_out
    transforms = tiles * transform.products * operations * per_operation(vdevice)
    compute = transforms + _products(size, tiling, tiles, vdevice)
    loads = weight_cycles(_weight_bytes(size, transform), vdevice)
    if not tiling.fused:
        loads += 2 * between_stages(_scratch_bytes(size, tiling), vdevice)
    stages = 1 if tiling.fused else 2
    return together(compute, loads, vdevice) + stages * vdevice.speeds.cycles.stage


def in_parts(
    size: ConvolutionSize, tiling: WinogradTiling, vdevice: VDevice
) -> Option[WinogradTiling]:
    """A staged tiling as its tasks of products: how many, and the modelled cycles of each."""
    transform, tile = tiling.transform, tiling.task_tile
    blocks = -(-_grid(size, transform).num_tiles // tiling.block)
    layout = size.channels.layout(tiling.register_tile)
    tasks = blocks * layout.groups * layout.tiles * prod(tiling.parts)
    steps = size.channels.depth * step_cycles(tile, tiling.rows, vdevice)
    results = tiling.rows * tile.vectors * (2.0 + _OUTPUT_OPERATIONS) * per_operation(vdevice)
    weights = 4 * transform.products * size.channels.depth * tile.vectors * tile.lanes
    loads = from_shared_cache(weights, vdevice)
    cycles = together(transform.products * (steps + results), loads, vdevice)
    return Option(tiling, tasks, cycles)


def finer(size: ConvolutionSize, tiling: WinogradTiling, vdevice: VDevice) -> list[WinogradTiling]:
    """Tilings that divide the tasks of one whose packing and transformed inputs they share."""
    if tiling.fused:
        usual = _fused(size, tiling, vdevice)
        blocks = range(tiling.register_tile.rows, tiling.block, tiling.register_tile.rows)
        options = [_fused(size, replace(tiling, block=block), vdevice) for block in blocks]
        return finer_tilings(usual, options, vdevice.num_veus, VERY_LARGE_DEVICE)
    # Vectors that overlap are stored by one task.
    ragged = size.channels.layout(tiling.register_tile).ragged
    options = [
        in_parts(size, replace(tiling, parts=(down, across)), vdevice)
        for down in _divisors(tiling.block)
        for across in (_divisors(tiling.register_tile.vectors) if not ragged else [1])
        if down * across > 1
    ]
    usual = in_parts(size, tiling, vdevice)
    return finer_tilings(usual, options, vdevice.num_veus, VERY_LARGE_DEVICE)


def _fused(
    size: ConvolutionSize, tiling: WinogradTiling, vdevice: VDevice
) -> Option[WinogradTiling]:
    """A fused tiling as its tasks: a block of the image each, with all transforms and weights."""
    tasks = -(-_grid(size, tiling.transform).num_tiles // tiling.block)
    cycles = winograd_cycles(size, tiling, vdevice) - vdevice.speeds.cycles.stage
    loads = from_shared_cache(_weight_bytes(size, tiling.transform), vdevice)
    return Option(tiling, tasks, together(cycles / tasks, loads, vdevice))


def _lanes(size: ConvolutionSize, vdevice: VDevice) -> int | None:
    """Lanes of the input channels; ``None`` of what is empty or has too few channels."""
    lanes = overlapping_lanes(size.channels.inputs, vdevice)
    is_empty = not (size.batch and size.height and size.width)
    return None if is_empty or overlapping_lanes(size.channels.width, vdevice) is None else lanes


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _tilings(
    size: ConvolutionSize, transform: Transform, lanes: int, vdevice: VDevice
) -> Iterator[WinogradTiling]:
    """The staged tiling, and the fused one where a block's inputs stay in the near cache."""
    tiles = _grid(size, transform).num_tiles
    register = _register_tile(tiles, size.channels.width, vdevice)
    block = _block(size, transform, register, vdevice)
    staged = WinogradTiling(transform, lanes, register, block, False)
    yield replace(staged, rows_first=_rows_first(size, staged, vdevice))
    near = 4 * block * transform.products * size.channels.inputs <= vdevice.l2_bytes // 3
    if near and -(-tiles // block) >= _FUSED_BLOCKS:
        yield replace(staged, fused=True)


def _block(
    size: ConvolutionSize, transform: Transform, register: RegisterTile, vdevice: VDevice
) -> int:
    """Tiles of the image in a block: more where each loads the weights of a group anew."""
    tiles = _grid(size, transform).num_tiles
    if tiles <= MANY_ROWS:
        return tiles
    results = 4 * transform.products * register.vectors * register.lanes
    if results * size.channels.depth <= vdevice.l2_bytes:
        return register.rows * max(1, round(_BLOCK / register.rows))
    most = max(_BLOCK, vdevice.l2_bytes // 4 // results)
    return register.rows * -(-tiles // (-(-tiles // most) * register.rows))


def _rows_first(size: ConvolutionSize, tiling: WinogradTiling, vdevice: VDevice) -> bool:
    """Whether all output channels of a tile of the image are computed before the next tile.

    vEUs then read transformed inputs of their own and write rows of their own, but each of them
    reads all weights, more than once unless they stay in its cache. With channels first it is the
    other way round: weights of their own, and most inputs from the caches of other vEUs.
    """
    tiles = _grid(size, tiling.transform).num_tiles
    weights = _weight_bytes(size, tiling.transform)
    far = weights > vdevice.l2_bytes * 3 // 4
    passes = max(1, -(-tiles // tiling.block) // vdevice.num_veus) if far else 1
    return passes * weights <= _CROSSING * _scratch_bytes(size, tiling)


def _register_tile(tiles: int, channels: int, vdevice: VDevice) -> RegisterTile:
    """The register tile with the fewest modelled cycles for a step of all products.

    Unlike in a direct convolution every weight comes from a cache for every register tile, so tiles
    with many rows are better.
    """

    def cycles(tile: RegisterTile) -> float:
        # The more sums, the more of them LLVM may spill.
        spilt = 1 + vdevice.speeds.cycles.spilt_sum * tile.rows * tile.vectors
        return (
            step_cycles(tile, tiles, vdevice) * -(-channels // (tile.vectors * tile.lanes)) * spilt
        )

    return min(register_tiles(tiles, channels, vdevice), key=cycles)


def _products(size: ConvolutionSize, tiling: WinogradTiling, tiles: int, vdevice: VDevice) -> float:
    register = tiling.register_tile
    layout = size.channels.layout(register)
    groups = layout.groups * layout.tiles
    # Every sum is cleared and stored once.
    sums = 2.0 * tiles * register.vectors * per_operation(vdevice)
    steps = size.channels.depth * step_cycles(register, tiles, vdevice)
    return tiling.transform.products * groups * (steps + sums)


def _grid(size: ConvolutionSize, transform: Transform) -> TileGrid:
    return TileGrid(size.batch, size.height, size.width, transform.outputs)


def _scratch_bytes(size: ConvolutionSize, tiling: WinogradTiling) -> int:
    return tiling.scratch_bytes(_grid(size, tiling.transform).num_tiles, size.channels.inputs)


def _weight_bytes(size: ConvolutionSize, transform: Transform) -> int:
    """Bytes of transformed weights."""
    return 4 * transform.products * size.channels.depth * size.channels.outputs
