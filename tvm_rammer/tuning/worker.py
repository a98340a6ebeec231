"""What runs in MetaSchedule's worker processes: building choices, checking and timing them."""

from __future__ import annotations

import io
import statistics
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.support.tar import tar

from tvm_rammer.backend.protocol import Trial
from tvm_rammer.backend.registry import resolve_target
from tvm_rammer.errors import TuningError
from tvm_rammer.kernel.scheduled import Choice
from tvm_rammer.tuning.answers import disagreement, example
from tvm_rammer.tuning.sketch_choice import is_sketch
from tvm_rammer.tuning.space import choice_numbers
from tvm_rammer.tuning.task import Task
from tvm_rammer.whole_files import write_whole

#: Runs of one choice, the median of whose fastest half counts; and rounds of a race.
RUNS, ROUNDS = 24, 21
#: Runs of a second altogether are enough.
_ENOUGH_SECONDS = 1.0
_FEWEST = 8


def build_choices(
    scratch: Path, mod: tvm.IRModule, target: tvm.target.Target, _: Any
) -> tvm.runtime.Module:
    """What MetaSchedule's builder calls: the choices that an annotated workload stands for."""
    task = Task.of(mod)
    return task.tuner.compile(named_choices(scratch, task, choice_numbers(mod)), target)


def export_into(scratch: Path, module: tvm.runtime.Module) -> str:
    """Write a module where it is removed with all others, whatever happens to this process."""
    path = str(Path(tempfile.mkdtemp(dir=scratch)) / f"choices.{tar.output_format}")
    module.export_library(path, fcompile=tar)
    return path


def write_task(scratch: Path, number: int, task: Task) -> None:
    """Put a task where workers look for it."""
    write_whole(_task_file(scratch, number), tvm.ir.save_json(task.workload()).encode())


def write_trace(scratch: Path, number: int, text: str) -> None:
    """Put a sketch where workers look for it."""
    path = _trace_file(scratch, number)
    if not path.exists():
        write_whole(path, text.encode())


def named_choices(scratch: Path, task: Task, numbers: Sequence[int]) -> list[Choice]:
    """Choices of a task by their numbers."""
    for number in filter(is_sketch, numbers):
        task.known.traces[number] = _trace_file(scratch, number).read_text()
    return [task.choice(number) for number in numbers]


def name_choices(device: Any, infos: Any, repeat: int) -> list[list[int]]:
    """The arguments of :func:`run_choices`: the numbers of a task and of choices."""
    ((_, _, numbers),) = infos
    return [list(map(int, numbers))]


def name_remote_choices(session: Any, device: Any, infos: Any, repeat: int) -> list[list[int]]:
    """The same behind a connection."""
    return name_choices(device, infos, repeat)


def run_choices(
    scratch: Path, module: Any, device: Any, config: Any, arguments: Any
) -> list[float]:
    """Check and time choices of one task.

    Returns
    -------
    list of float
        Of one choice, its seconds; of several, those of each in every round.

    Raises
    ------
    TuningError
        If a choice computes something else than the operator.
    """
    ((place, *numbers),) = arguments
    task = _task(scratch, place)
    choices = named_choices(scratch, task, numbers)
    trial = _trial(task, module, choices, device)
    want = reference(scratch, place)
    for number, choice in enumerate(choices):
        wrong = disagreement(trial.outputs(number), want, task.winograd_tolerance)
        if wrong:
            raise TuningError(f"{choice.text}: wrong numbers: {wrong}")
    return _seconds(trial, len(choices))


def run_remote_choices(
    scratch: Path, session: Any, module: Any, device: Any, config: Any, arguments: Any
) -> list[float]:
    """The same behind a connection."""
    return run_choices(scratch, module, device, config, arguments)


def _seconds(trial: Trial, count: int) -> list[float]:
    (once,) = trial.seconds(0, 1)
    runs = RUNS if count == 1 else ROUNDS
    # A run takes a millisecond, or as long as the operator.
    runs = min(runs, max(_FEWEST, round(_ENOUGH_SECONDS / count / max(once, 1e-3))))
    if count == 1:
        found = sorted(trial.seconds(0, runs))
        return [statistics.median(found[: max(1, runs // 2)])]
    return [trial.seconds(number, 1)[0] for _ in range(runs) for number in range(count)]


def reference(scratch: Path, place: int) -> list[np.ndarray]:
    """What a task must compute, by its loops as they were written; computed once."""
    path = scratch / f"reference-{place}.npz"
    if not path.exists():
        task = _task(scratch, place)
        module = task.tuner.compile([task.reference], resolve_target(None))
        trial = _trial(task, module, [task.reference], None)
        data = io.BytesIO()
        np.savez(data, *trial.outputs(0))
        write_whole(path, data.getvalue())
    with np.load(path) as arrays:
        return [arrays[name] for name in arrays.files]


def _trial(task: Task, module: Any, choices: Sequence[Choice], device: Any) -> Trial:
    vdevice = task.vdevice
    inputs = [example(shape, dtype, k) for k, (shape, dtype) in enumerate(task.inputs)]
    return task.tuner.trial(module, choices, inputs, vdevice.l2_bytes, device)


@lru_cache(8)
def _task(scratch: Path, place: int) -> Task:
    return Task.of(tvm.ir.load_json(_task_file(scratch, place).read_text()))


def _task_file(scratch: Path, place: int) -> Path:
    return scratch / f"task-{place}.json"


def _trace_file(scratch: Path, number: int) -> Path:
    return scratch / f"trace-{number}.json"
