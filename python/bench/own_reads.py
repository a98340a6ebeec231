"""What tasks of a GPU's blocks read that their own block wrote, and what to keep it would save."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tvm_rammer.backend.cuda.devices import usual_gpu
from tvm_rammer.backend.cuda.sm_time import speeds_of
from tvm_rammer.rprogram import RProgram
from tvm_rammer.rprogram.program import CELLS
from tvm_rammer.rprogram.rows import root_of
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.critical_path import critical_chain
from tvm_rammer.schedule.simulate import simulate


@dataclass(frozen=True)
class OwnReads:
    """Of a plan.

    Attributes
    ----------
    reads, own : int
        Results that tasks read, and those of which their own block wrote all that they read.
    nbytes, own_bytes : float
        Of these.
    seconds : float
        Of the plan, simulated.
    saved : float
        Of these, what those tasks on the critical path would save at most if what their own block
        wrote were in its shared memory.
    """

    reads: int
    own: int
    nbytes: float
    own_bytes: float
    seconds: float
    saved: float


def own_reads(program: RProgram, costs: CostModel, arch: str) -> OwnReads:
    """Count what blocks read of their own, and bound what it is worth.

    It would save the transfer of the bytes, at the rate of a block when all blocks draw, and a task
    that reads nothing else a trip to the L2 cache: the loads of others wait together, for weights
    or for what another block wrote. Nothing is taken off for the barrier that would be needed
    instead, nor for what does not fit.

    Parameters
    ----------
    program : RProgram
    costs : CostModel
        Of the device.
    arch : str
        Such as ``"sm_90"``.
    """
    gpu = usual_gpu(arch)
    latency = gpu.l2_cycles / gpu.clock
    rate = gpu.l2_bytes_per_cycle * speeds_of(gpu).l2_share * gpu.clock / program.num_veus
    reads, own, nbytes, own_bytes = 0, 0, 0.0, 0.0
    saving: dict[tuple[int, int], float] = {}
    for veu, tasks in enumerate(program.veus):
        written: dict[int, int] = defaultdict(int)
        for position, task in enumerate(tasks):
            operator = program.operators[task.operator]
            kernel = program.kernel_of(task.operator)
            kept, others = 0.0, False
            for pointer, (number, mode) in enumerate(
                zip(operator.arguments, kernel.modes, strict=True)
            ):
                buffer = program.buffers[number]
                if program.buffers[root_of(program.buffers, number)].space != "arena":
                    others |= mode == "read"
                    continue
                cells = kernel.touched(pointer, task.start, task.stop)
                if mode == "write":
                    written[number] |= cells
                    continue
                held = buffer.nbytes * cells.bit_count() / CELLS
                reads, nbytes = reads + bool(cells), nbytes + held
                if cells and not cells & ~written[number]:
                    own, own_bytes, kept = own + 1, own_bytes + held, kept + held
                else:
                    others = True
            if kept:
                saving[veu, position] = kept / rate + (0.0 if others else latency)
    timeline = simulate(program, costs)
    saved = 0.0
    durations = {(span.veu, span.position): span.duration for span in timeline.spans}
    for place in critical_chain(program, timeline):
        saved += min(saving.get(place, 0.0), durations[place])
    return OwnReads(reads, own, nbytes, own_bytes, timeline.makespan, saved)
