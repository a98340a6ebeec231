"""The seconds of an operator that no choice can beat: tuning ends where they are near."""

from __future__ import annotations

from tvm_rammer.kernel.nodes import buffer_bytes
from tvm_rammer.kernel.operands import copies_for
from tvm_rammer.kernel.roofline import roofline
from tvm_rammer.kernel.scheduled import Choice
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.kernel.work import work_of
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.tuning.task import Task


def least_seconds(task: Task, ceilings: Ceilings) -> float:
    """The roofline of an operator on one core: that of the algorithm which needs least.

    Winograd's has fewer operations than a direct convolution and moves more bytes. All choices of a
    rule do about the same, so that the first one, the most efficient, stands for them.

    Parameters
    ----------
    task : Task
    ceilings : Ceilings
        What one core reaches.
    """
    untuned, *others = task.choices
    algorithms = {choice.rounding[:1]: choice for choice in reversed(others)}
    return min(
        _roofline_seconds(choice, task.vdevice, ceilings)
        for choice in (untuned, *algorithms.values())
    )


def _roofline_seconds(choice: Choice, vdevice: VDevice, ceilings: Ceilings) -> float:
    """The least seconds of what one choice does, its stages one after the other."""
    func = choice.emit().func
    split = split_into_stages(func)
    sizes = [buffer_bytes(buffer) for buffer in (*func.params, *split.scratch)]
    working_set = sum(sizes) * copies_for(sum(sizes), vdevice.l2_bytes)
    seconds = 0.0
    for stage in split.stages:
        touched = [sizes[number] for number in stage.arguments]
        work = work_of(stage.body, stage.num_tiles, touched)
        seconds += roofline(work, working_set, ceilings, vdevice).seconds
    return seconds
