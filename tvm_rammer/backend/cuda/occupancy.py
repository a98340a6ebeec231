"""How many blocks of a kernel an SM runs at the same time.

By warps, registers, shared memory and blocks, each given out in units, as ``cuda_occupancy.h`` of
CUDA counts.
"""

from __future__ import annotations

from tvm_rammer.backend.cuda.devices import (
    BLOCK_THREADS,
    REGISTERS,
    SCHEDULERS,
    THREAD_REGISTERS,
    WARP_THREADS,
    CudaArchitecture,
    architecture_of,
)
from tvm_rammer.errors import DeviceError

#: Registers are given to warps in so many at once.
REGISTER_UNIT = 256


def blocks_per_sm(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks of a kernel that are resident on an SM together.

    Parameters
    ----------
    arch : str
        Such as ``"sm_90"``.
    threads : int
        Of a block.
    registers : int
        Of a thread.
    shared_bytes : int
        Of a block, static and dynamic.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    DeviceError
        When the architecture is not known, or not even one block fits: names what is too much.
    """
    found = architecture_of(arch)
    _check(found, threads, registers, shared_bytes)
    warps = -(-threads // WARP_THREADS)
    blocks = min(found.blocks, found.warps // warps)
    if registers:
        blocks = min(blocks, _warps_by_registers(registers) // warps)
    if shared := _round_up(shared_bytes + found.system_shared_bytes, found.shared_unit):
        blocks = min(blocks, found.shared_bytes // shared)
    return blocks


def resident_blocks(arch: str, threads: int, shared_bytes: int, most: int) -> int:
    """Blocks that an SM runs beside each other when each has all the registers it may have then.

    Parameters
    ----------
    arch : str
    threads, shared_bytes : int
        Of a block.
    most : int
        Blocks that are wanted.
    """
    of_warp = REGISTERS // (most * threads // WARP_THREADS)
    registers = min(THREAD_REGISTERS, of_warp // REGISTER_UNIT * REGISTER_UNIT // WARP_THREADS)
    return min(most, blocks_per_sm(arch, threads, registers, shared_bytes))


def _check(arch: CudaArchitecture, threads: int, registers: int, shared_bytes: int) -> None:
    warps = -(-threads // WARP_THREADS)
    # A block's warps are dealt out to the schedulers, each of which has its part of the registers.
    most_warps = _warps_by_registers(registers) if registers else arch.warps
    limits = (
        ("threads in a block", threads, BLOCK_THREADS),
        ("registers in a thread", registers, THREAD_REGISTERS),
        ("bytes of shared memory in a block", shared_bytes, arch.block_shared_bytes),
        (f"warps of {registers} registers in a thread", warps, most_warps),
    )
    for what, asked, most in limits:
        if asked > most:
            raise DeviceError(f"{asked} {what} are too many for {arch.name}: at most {most}")
    if threads < 1 or registers < 0 or shared_bytes < 0:
        raise DeviceError(
            f"{threads} threads, {registers} registers and {shared_bytes} bytes of shared memory "
            "are no block: give at least one thread, and nothing below 0"
        )


def _warps_by_registers(registers: int) -> int:
    """Warps of threads with so many registers that an SM has room for."""
    of_warp = _round_up(registers * WARP_THREADS, REGISTER_UNIT)
    return REGISTERS // SCHEDULERS // of_warp * SCHEDULERS


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
