"""Whether minimal filtering along one axis pays for a convolution, and in which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from tvm_rammer.backend.cpu.templates.finer import Option, finer_tilings
from tvm_rammer.backend.cpu.templates.register_tile import overlapping_lanes
from tvm_rammer.backend.cpu.templates.winograd.accuracy import line_error
from tvm_rammer.backend.cpu.templates.winograd.choice import MAX_SCRATCH_BYTES
from tvm_rammer.backend.cpu.templates.winograd.cycles import (
    between_stages,
    direct_cycles,
    from_shared_cache,
    per_operation,
    step_cycles,
    together,
    weight_cycles,
)
from tvm_rammer.backend.cpu.templates.winograd.line_tiling import Lines, LineTiling
from tvm_rammer.backend.cpu.templates.winograd.products import register_tiles
from tvm_rammer.machine import VDevice

#: Lines are taken if they need at most this part of the direct convolution's cycles. Seven by seven
#: taps on small images promise 0.85 and gain nothing.
WORTHWHILE = 0.8
#: Tiles of a task, about: their weights come once from the last-level cache for all of them.
_TILES = 56
#: Vector operations per product: transforms of the input and of the output.
_INPUT_OPERATIONS, _OUTPUT_OPERATIONS = 5.0, 3.0


def choose_tiling(
    lines: Lines, vdevice: VDevice, tolerance: float
) -> tuple[LineTiling, float] | None:
    """The tiling of lines along an axis and its modelled cycles, on one vEU.

    ``None`` if a direct convolution is as good, or too many digits are lost.
    """
    channels = lines.channels
    cycles, tiling = min(
        ((line_cycles(lines, each, vdevice), each) for each in _tilings(lines, vdevice)),
        key=lambda choice: choice[0],
        default=(inf, None),
    )
    if tiling is None:
        return None
    outputs, taps = lines.batch * lines.count * lines.length, lines.taps * lines.across
    if cycles > WORTHWHILE * direct_cycles(outputs, taps, channels, vdevice):
        return None
    if line_error(lines.transform, lines.across * lines.steps) > tolerance:
        return None
    return tiling, cycles


def all_tilings(lines: Lines, vdevice: VDevice, tolerance: float) -> Iterator[LineTiling]:
    """Every tiling along an axis that is accurate enough, in tasks of several sizes."""
    if line_error(lines.transform, lines.across * lines.steps) > tolerance:
        return
    for usual in _tilings(lines, vdevice):
        for count in sorted({1, -(-usual.lines // 2), usual.lines, lines.batch * lines.count}):
            yield replace(usual, lines=count)


def _tilings(lines: Lines, vdevice: VDevice) -> Iterator[LineTiling]:
    """All register tiles, in tasks of the usual size; none of what cannot be computed so."""
    lanes = overlapping_lanes(lines.channels.inputs, vdevice)
    if lanes is None or overlapping_lanes(lines.channels.width, vdevice) is None:
        return
    if not (lines.batch and lines.count and lines.length):
        return
    if _scratch_bytes(lines) > MAX_SCRATCH_BYTES:
        return
    count = _lines_of_task(lines, _blocks(lines))
    for register in register_tiles(lines.tiles, lines.channels.width, vdevice):
        yield LineTiling(lines.transform, lines.axis, lanes, register, count)


def line_cycles(lines: Lines, tiling: LineTiling, vdevice: VDevice) -> float:
    """Modelled cycles of a tiling on one vEU."""
    products = tiling.transform.inputs
    vectors = -(-lines.channels.inputs // tiling.lanes)
    moved = lines.batch * lines.in_lines * lines.places * products * vectors
    transforms = moved * _INPUT_OPERATIONS * per_operation(vdevice)
    task = _task(lines, tiling, vdevice)
    weights = 4 * products * lines.across * lines.steps * lines.channels.outputs
    loads = weight_cycles(weights, vdevice) + 2 * between_stages(_scratch_bytes(lines), vdevice)
    compute = transforms + task.num_tiles * task.tile_time
    return together(compute, loads, vdevice) + 2 * vdevice.speeds.cycles.stage


def finer(lines: Lines, tiling: LineTiling, vdevice: VDevice) -> list[LineTiling]:
    """Tilings with fewer lines in a task, which share the packing and the transformed inputs."""
    counts = range(_blocks(lines) + 1, lines.batch * lines.count + 1)
    cut = dict.fromkeys(_lines_of_task(lines, count) for count in counts)
    options = [
        _task(lines, replace(tiling, lines=each), vdevice) for each in cut if each < tiling.lines
    ]
    return finer_tilings(_task(lines, tiling, vdevice), options, vdevice.num_veus)


def _task(lines: Lines, tiling: LineTiling, vdevice: VDevice) -> Option[LineTiling]:
    """The tasks of a tiling, and the modelled cycles of one."""
    register, products = tiling.register_tile, tiling.transform.inputs
    blocks = -(-lines.batch * lines.count // tiling.lines)
    steps = lines.across * lines.steps
    # Every sum is cleared, stored, and transformed.
    results = lines.tiles * register.vectors * (2 + _OUTPUT_OPERATIONS) * per_operation(vdevice)
    step = step_cycles(register, lines.tiles, vdevice)
    loads = from_shared_cache(4 * steps * tiling.columns, vdevice)
    cycles = products * together(tiling.lines * (steps * step + results), loads, vdevice)
    layout = lines.channels.layout(register)
    return Option(tiling, blocks * layout.groups * layout.tiles, cycles)


def _blocks(lines: Lines) -> int:
    """Tasks for a group of output channels, about."""
    return -(-lines.batch * lines.count * lines.tiles // _TILES)


def _lines_of_task(lines: Lines, blocks: int) -> int:
    """Lines of each of so many tasks, or of a few less."""
    return -(-lines.batch * lines.count // blocks)


def _scratch_bytes(lines: Lines) -> int:
    """Bytes of transformed inputs."""
    places = lines.batch * lines.in_lines * lines.places
    return 4 * places * lines.transform.inputs * lines.channels.inputs
