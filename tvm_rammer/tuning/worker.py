"""What runs in MetaSchedule's worker processes: building and timing one choice."""

from __future__ import annotations

from typing import Any

import tvm

from tvm_rammer.backend.registry import backend_named
from tvm_rammer.tuning.space import choice_number
from tvm_rammer.tuning.task import Task, tuner_of


def build_choice(mod: tvm.IRModule, target: tvm.target.Target, _: Any) -> tvm.runtime.Module:
    """What MetaSchedule's builder calls: the choice that a scheduled workload stands for."""
    task = Task.of(mod)
    return task.tuner.compile(task.choices[choice_number(mod)], target)


def time_choice(backend: str, module: Any, device: Any, config: Any, arguments: Any) -> list[float]:
    """What MetaSchedule's runner calls, for a back end."""
    return [tuner_of(backend_named(backend)).seconds(module)]


def no_arguments(device: Any, infos: Any, repeat: int) -> list[list[Any]]:
    """What MetaSchedule's runner calls before; back ends make the operands themselves."""
    return [[]]
