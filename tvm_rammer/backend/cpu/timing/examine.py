"""Kernels by themselves: the vectors in their code, and their time on one core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import tvm
from tvm import tirx

from tvm_rammer.backend.cpu.host.one_core import on_one_core
from tvm_rammer.backend.cpu.timing.kernel_timing import CompiledJobs, Job, Step, compile_jobs
from tvm_rammer.backend.protocol import Examined
from tvm_rammer.kernel.constraints import Vectors, vectors_in
from tvm_rammer.kernel.operands import KernelUse, Timing, copies_for
from tvm_rammer.machine import VDevice


def examine(
    uses: Sequence[KernelUse],
    bodies: Mapping[str, tirx.PrimFunc],
    target: tvm.target.Target,
    vdevice: VDevice,
) -> list[Examined]:
    """Compile kernels, look at their code, and time them where the target is this machine.

    Parameters
    ----------
    uses : sequence of KernelUse
    bodies : mapping of str to PrimFunc
        By rKernel name.
    target : Target
    vdevice : VDevice
        The device behind it.
    """
    compiled = compile_jobs(tuple(map(_job, uses)), bodies, target)
    vectors = vectors_of_jobs(compiled)
    timings: Sequence[Timing | None] = [None] * len(uses)
    if vdevice.host:
        timings = on_one_core(lambda: _timings(compiled, vdevice))
    return [Examined(*found) for found in zip(vectors, timings, strict=True)]


def vectors_of_jobs(compiled: CompiledJobs) -> list[Vectors]:
    """The widest vectors in the code of every job."""
    functions = vectors_in(compiled.module.inspect_source("ll"))
    found = []
    for number in range(len(compiled.jobs)):
        marks = (f"job_{number}_", f"__tvm_ffi_job_{number}")
        mine = (v for name, v in functions.items() if name.startswith(marks[0]) or name == marks[1])
        found.append(reduce(Vectors.__or__, mine, Vectors()))
    return found


def _job(use: KernelUse) -> Job:
    kernel, operands = use
    return Job((Step(kernel.name, kernel.num_tiles, tuple(range(len(operands)))),), operands)


def _timings(compiled: CompiledJobs, vdevice: VDevice) -> list[Timing]:
    timings = []
    for number, job in enumerate(compiled.jobs):
        copies = copies_for(job.nbytes, vdevice.l2_bytes)
        memory = compiled.memory(number, copies=copies)
        timings.append(compiled.time(number, memory, copies))
    return timings
