"""Times one choice of the tuner: all of its stages, one tile after another on one core.

Operands rotate through copies that the second-level cache does not hold, as in a network.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.cpu.templates.code_budget import within_budget
from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
from tvm_rammer.backend.cpu.timing.kernel_timing import Job, Step, compile_jobs
from tvm_rammer.errors import TuningError
from tvm_rammer.kernel.operands import Operand, copies_for
from tvm_rammer.kernel.scheduled import Choice
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.rprogram.program import ALIGNMENT

#: Seconds of one timed run, and of all of them; the median of the fastest half counts.
_RUN_SECONDS, _TOTAL_SECONDS = 1e-3, 0.03
#: At least so many runs, however long they are.
_FEWEST_RUNS = 8


def compile_choice(choice: Choice, target: tvm.target.Target) -> tvm.runtime.Module:
    """A choice as a job of :mod:`~tvm_rammer.backend.cpu.timing.kernel_timing`."""
    scheduled = within_budget(choice.emit())
    if scheduled is None:
        raise TuningError(f"{choice.text}: the code exceeds the budget of a body")
    split = split_into_stages(scheduled.func, tile_seconds)
    params = [Operand(tuple(map(int, p.shape)), str(p.dtype)) for p in scheduled.func.params]
    scratch = [Operand(each.shape, each.dtype) for each in split.scratch]
    bodies = {f"stage{k}": stage.body for k, stage in enumerate(split.stages)}
    steps = [
        Step(name, stage.num_tiles, stage.arguments)
        for name, stage in zip(bodies, split.stages, strict=True)
    ]
    return compile_jobs((Job(tuple(steps), (*params, *scratch)),), bodies, target).module


def time_choice(module: Any) -> float:
    """Seconds of a run; the calling process stays on one core from then on."""
    sizes = np.zeros(1, np.int64)
    module["job_bytes"](tvm_ffi.from_dlpack(sizes))
    cpu = host_cpu()
    os.sched_setaffinity(0, {cpu.cpus[-1]})
    copies = copies_for(int(sizes[0]), cpu.l2_bytes or 1 << 20)
    run, memory = module["job_0"], tvm_ffi.from_dlpack(_memory(int(sizes[0]) * copies))

    def seconds(repeats: int) -> float:
        started = time.perf_counter()
        run(repeats, copies, memory)
        return (time.perf_counter() - started) / repeats

    seconds(copies)
    repeats = copies * max(1, round(_RUN_SECONDS / (seconds(copies) * copies)))
    end = time.perf_counter() + _TOTAL_SECONDS
    found: list[float] = []
    while len(found) < _FEWEST_RUNS or time.perf_counter() < end:
        found.append(seconds(repeats))
    return statistics.median(sorted(found)[: len(found) // 2])


def _memory(nbytes: int) -> np.ndarray:
    """Memory that starts where vectors may, full of ordinary numbers."""
    held = np.full(nbytes // 4 + 2 * ALIGNMENT, 0.5, np.float32).view(np.uint8)
    start = -held.ctypes.data % ALIGNMENT
    return held[start : start + nbytes]
