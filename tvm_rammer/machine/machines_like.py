"""Machines that differ from one in what its description is most often wrong about."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from tvm_rammer.machine.speeds import CoreCycles
from tvm_rammer.machine.vdevice import MOST_VECTOR_REGISTERS, VDevice

#: Of latencies, and of the second-level cache.
_LATENCIES, _CACHES = (0.5, 2.0), (0.25, 1.0, 4.0)


def machines_like(vdevice: VDevice) -> list[VDevice]:
    """Every combination of a few registers, caches and cores, that of the machine among them.

    Twice the registers; four times or a quarter of the second-level cache; twice or half of the
    latencies, or narrow vectors that take as long as wide ones.
    """
    cycles = vdevice.speeds.cycles
    cores = [cycles, *(_slower(cycles, factor) for factor in _LATENCIES), _vectors_alike(cycles)]
    registers = {vdevice.vector_registers: None, twice_the_registers(vdevice): None}
    return [
        replace(
            vdevice,
            vector_registers=count,
            l2_bytes=int(factor * vdevice.l2_bytes),
            speeds=replace(vdevice.speeds, cycles=core),
        )
        for count, factor, core in product(registers, _CACHES, cores)
    ]


def twice_the_registers(vdevice: VDevice) -> int:
    """Vector registers, as far as there are instructions for so many."""
    twice = min(2 * vdevice.vector_registers, MOST_VECTOR_REGISTERS)
    return max(vdevice.vector_registers, twice)


def _slower(cycles: CoreCycles, factor: float) -> CoreCycles:
    return replace(
        cycles,
        multiply_add_latency=factor * cycles.multiply_add_latency,
        latency_slack=factor * cycles.latency_slack,
    )


def _vectors_alike(cycles: CoreCycles) -> CoreCycles:
    wide = cycles.wide_operation
    return replace(cycles, narrow_operation=wide, narrow_product=wide, narrow_tap=wide)
