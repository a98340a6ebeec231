"""From a scheduled PrimFunc to its stages: an rTask body, tiles and footprints for each launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import tvm
from tvm import tirx

from tvm_rammer.backend.cuda.devices import WARP_THREADS, usual_gpu
from tvm_rammer.backend.cuda.launches import launches_of
from tvm_rammer.backend.cuda.occupancy import resident_blocks
from tvm_rammer.backend.cuda.operation_counts import count_operations
from tvm_rammer.backend.cuda.sm_time import BlockTime, block_time
from tvm_rammer.backend.cuda.thread_body import ThreadBody, is_thread_index, thread_body
from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.split import SplitKernel, split_into_stages

#: Attribute of a body: bytes of shared memory that a block needs to run it.
SHARED_BYTES = "tvm_rammer.shared_bytes"


@dataclass(frozen=True)
class Limits:
    """What a resident block has.

    Attributes
    ----------
    threads : int
    shared_bytes : int
        Most bytes of the pool.
    blocks_per_sm : int
        Resident beside each other.
    """

    threads: int
    shared_bytes: int
    blocks_per_sm: int


@dataclass(frozen=True)
class MadeStages:
    """The stages of a PrimFunc, and what a block needs to run each of them, and takes."""

    split: SplitKernel
    bodies: tuple[ThreadBody, ...]
    times: tuple[BlockTime, ...]

    def alone(self, veus: int) -> float:
        """Seconds of all tiles, one stage after the other, with so many blocks for themselves."""
        total = 0.0
        for stage, time in zip(self.split.stages, self.times, strict=True):
            times, rest = divmod(stage.num_tiles, veus)
            total += times * time.beside(veus) + (time.beside(rest) if rest else 0.0)
        return total


@lru_cache(maxsize=256)
def made_stages(func: tirx.PrimFunc, target: tvm.target.Target, limits: Limits) -> MadeStages:
    """Take a scheduled PrimFunc apart.

    Parameters
    ----------
    func : PrimFunc
        Its loops are bound to blocks and threads.
    target : Target
        Of kind ``cuda``.
    limits : Limits

    Raises
    ------
    ModelError
        When a launch exceeds the limits, or cannot become a body of its own.
    """
    launches = launches_of(func)
    split = split_into_stages(launches.plain)
    if len(split.stages) != len(launches.functions):
        raise ModelError(
            "a kernel for CUDA writes one buffer in several launches: leave the operator out of "
            "the plan"
        )
    bodies = tuple(
        thread_body(launch, stage.arguments, target, limits.threads)
        for launch, stage in zip(launches.functions, split.stages, strict=True)
    )
    for body in bodies:
        if body.shared_bytes > limits.shared_bytes:
            raise ModelError(
                f"a kernel for CUDA wants {body.shared_bytes:,} bytes of shared memory, and a "
                f"resident block has {limits.shared_bytes:,}: leave the operator out of the plan"
            )
    arch = str(target.attrs["arch"])
    times = tuple(_time(body, arch, limits) for body in bodies)
    stages = tuple(
        replace(
            stage,
            body=body.func.with_attr(SHARED_BYTES, body.shared_bytes),
            tile_seconds=time.seconds,
        )
        for stage, body, time in zip(split.stages, bodies, times, strict=True)
    )
    return MadeStages(SplitKernel(stages, launches.scratch), bodies, times)


def _time(body: ThreadBody, arch: str, limits: Limits) -> BlockTime:
    """What a tile takes a resident block, as its operations count: nobody has measured it."""
    work = count_operations(body.func, body.num_tiles, limits.threads, is_thread_index)
    # Counted as the mean of a block; who has loads waits for all of its own.
    work = replace(work, global_loads=work.global_loads * limits.threads / body.threads)
    warps = limits.threads // WARP_THREADS
    resident = resident_blocks(arch, limits.threads, limits.shared_bytes, limits.blocks_per_sm)
    return block_time(usual_gpu(arch), resident, work, warps)
