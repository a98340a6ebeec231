"""What the steps of an algorithm cost, in cycles of one core: the parts of Winograd's models."""

from __future__ import annotations

from math import sqrt

from tvm_rammer.backend.cpu.templates.register_tile import (
    RegisterTile,
    operation_cycles,
    overlapping_lanes,
)
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.machine import VDevice

#: More rows than this are divided into register tiles of equal height, the last one filled up.
MANY_ROWS = 28


def direct_cycles(outputs: int, taps: int, channels: Channels, vdevice: VDevice) -> float:
    """Cycles of a direct convolution of so many outputs per channel, on one vEU."""
    weights = taps * channels.depth * channels.outputs
    lanes = overlapping_lanes(channels.width, vdevice) or 1
    vectors = channels.groups * -(-channels.width // lanes)
    overhead = vdevice.speeds.cycles.direct_overhead
    compute = overhead * outputs * taps * channels.depth * vectors * per_operation(vdevice)
    loads = weight_cycles(4 * weights, vdevice)
    return together(compute, loads, vdevice) + vdevice.speeds.cycles.stage


def step_cycles(register: RegisterTile, tiles: int, vdevice: VDevice) -> float:
    """Cycles of one step of the reduction, for all tiles of the image."""
    each, core = per_operation(vdevice), vdevice.speeds.cycles

    def step(rows: int) -> float:
        multiply_adds = rows * register.vectors * each
        loads = (rows + register.vectors) * each
        weights = core.staged_weights * register.vectors
        return max(multiply_adds, loads, core.multiply_add_latency) + weights

    full, ragged = divmod(tiles, register.rows)
    if tiles > MANY_ROWS:
        return (full + bool(ragged)) * step(register.rows)
    return full * step(register.rows) + (step(ragged) if ragged else 0.0)


def weight_cycles(nbytes: float, vdevice: VDevice) -> float:
    """Cycles of loading weights: the cache that all share is for those of other operators too."""
    shared = nbytes <= vdevice.l3_bytes // 8
    return from_shared_cache(nbytes, vdevice) if shared else from_memory(nbytes, vdevice)


def from_shared_cache(nbytes: float, vdevice: VDevice) -> float:
    """Cycles of loading what is in the last-level cache."""
    return nbytes / vdevice.speeds.cache_bytes


def from_memory(nbytes: float, vdevice: VDevice) -> float:
    """Cycles of loading what is in no cache; more vEUs draw more together, but less each."""
    return nbytes / vdevice.speeds.memory_bytes * sqrt(vdevice.num_veus)


def between_stages(nbytes: float, vdevice: VDevice) -> float:
    """Cycles of loading what an earlier stage stored."""
    if nbytes <= vdevice.l2_bytes // 2:
        return 0.0
    if nbytes <= vdevice.l3_bytes // 2:
        return from_shared_cache(nbytes, vdevice)
    return from_memory(nbytes, vdevice)


def together(compute: float, loads: float, vdevice: VDevice) -> float:
    """Cycles of computing and loading side by side."""
    return max(compute, loads) + vdevice.speeds.cycles.exposed * min(compute, loads)


def per_operation(vdevice: VDevice) -> float:
    """Cycles of an operation of full vectors."""
    return operation_cycles(vdevice.vector_bytes, vdevice)
