"""What the steps of an algorithm cost, in cycles of one core: the parts of Winograd's models.

The constants were fitted on an AMD Zen 4 core.
"""

from __future__ import annotations

from math import sqrt

from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile, overlapping_lanes
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.machine import VDevice

#: What one core draws from memory and from the last-level cache, in bytes per cycle.
MEMORY_BYTES, CACHE_BYTES = 9.0, 24.0
#: Cycles until the result of a multiply-add is there, and of a vector of weights besides its load.
_LATENCY, _WEIGHT_CYCLES = 4.0, 0.5
#: Part of the shorter of computing and loading that the longer one does not hide.
_EXPOSED = 0.2
#: Cycles of a stage besides its work: its start, and vEUs that wait for others.
STAGE_CYCLES = 2000.0
#: More rows than this are divided into register tiles of equal height, the last one filled up.
MANY_ROWS = 28


def direct_cycles(outputs: int, taps: int, channels: Channels, vdevice: VDevice) -> float:
    """Cycles of a direct convolution of so many outputs per channel, on one vEU."""
    weights = taps * channels.depth * channels.outputs
    lanes = overlapping_lanes(channels.width, vdevice) or 1
    vectors = channels.groups * -(-channels.width // lanes)
    compute = 1.06 * outputs * taps * channels.depth * vectors * per_operation(vdevice)
    return together(compute, weight_cycles(4 * weights, vdevice)) + STAGE_CYCLES


def step_cycles(register: RegisterTile, tiles: int, vdevice: VDevice) -> float:
    """Cycles of one step of the reduction, for all tiles of the image."""
    each = per_operation(vdevice)

    def step(rows: int) -> float:
        multiply_adds = rows * register.vectors * each
        loads = (rows + register.vectors) * each
        return max(multiply_adds, loads, _LATENCY) + _WEIGHT_CYCLES * register.vectors

    full, ragged = divmod(tiles, register.rows)
    if tiles > MANY_ROWS:
        return (full + bool(ragged)) * step(register.rows)
    return full * step(register.rows) + (step(ragged) if ragged else 0.0)


def weight_cycles(nbytes: float, vdevice: VDevice) -> float:
    """Cycles of loading weights: the cache that all share is for those of other operators too."""
    shared = nbytes <= vdevice.l3_bytes // 8
    return nbytes / CACHE_BYTES if shared else from_memory(nbytes, vdevice)


def from_memory(nbytes: float, vdevice: VDevice) -> float:
    """Cycles of loading what is in no cache; more vEUs draw more together, but less each."""
    return nbytes / MEMORY_BYTES * sqrt(vdevice.num_veus)


def between_stages(nbytes: float, vdevice: VDevice) -> float:
    """Cycles of loading what an earlier stage stored."""
    if nbytes <= vdevice.l2_bytes // 2:
        return 0.0
    if nbytes <= vdevice.l3_bytes // 2:
        return nbytes / CACHE_BYTES
    return from_memory(nbytes, vdevice)


def together(compute: float, loads: float) -> float:
    """Cycles of computing and loading side by side."""
    return max(compute, loads) + _EXPOSED * min(compute, loads)


def per_operation(vdevice: VDevice) -> float:
    """Cycles of a vector operation: the widest take two of the units, or both halves of one."""
    return 1.0 if vdevice.vector_bytes >= 64 else 0.5
