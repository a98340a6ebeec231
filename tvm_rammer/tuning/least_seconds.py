"""The seconds of an operator that no choice can beat: tuning ends where they are near."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tvm import tirx

from tvm_rammer.kernel.operands import copies_for
from tvm_rammer.kernel.roofline import roofline
from tvm_rammer.kernel.work import work_of
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.region.kernel_library import OperatorKernel
from tvm_rammer.rprogram import dtype_bytes
from tvm_rammer.tuning.task import Task


def least_seconds(
    task: Task,
    kernel: OperatorKernel,
    bodies: Mapping[str, tirx.PrimFunc],
    ceilings: Ceilings,
) -> float:
    """The roofline of an operator on one core.

    Its operations count where all choices do the same: Winograd's algorithm has fewer.

    Parameters
    ----------
    task : Task
    kernel : OperatorKernel
        What it becomes without tuning.
    bodies : mapping of str to PrimFunc
        Of the kernels, by name.
    ceilings : Ceilings
        What one core reaches.
    """
    params = [
        prod(map(int, param.shape)) * dtype_bytes(str(param.dtype))
        for param in kernel.scheduled.func.params
    ]
    sizes = [*params, *(prod(each.shape) * dtype_bytes(each.dtype) for each in kernel.scratch)]
    working_set = sum(sizes) * copies_for(sum(sizes), task.vdevice.l2_bytes)
    same = len({choice.rounding[:1] for choice in task.choices[1:]}) == 1
    seconds = 0.0
    for stage in kernel.stages:
        touched = [sizes[number] for number in stage.arguments]
        work = work_of(bodies[stage.kernel.name], stage.kernel.num_tiles, touched)
        roof = roofline(work, working_set, ceilings, task.vdevice)
        seconds += roof.seconds if same else roof.memory_seconds
    return seconds
