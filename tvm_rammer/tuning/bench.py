"""Where choices are built, checked and timed: MetaSchedule's builder and runner."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from types import ModuleType

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.tuning.space import standing_for
from tvm_rammer.tuning.task import Task
from tvm_rammer.tuning.worker import (
    build_choices,
    export_into,
    name_choices,
    run_choices,
    write_task,
)

#: Seconds for building, and for checking and timing; the first time with loops as written.
_BUILD_SECONDS, _RUN_SECONDS = 120.0, 90.0


class Bench:
    """Builds choices in worker processes side by side, and times one after the other.

    One that crashes or hangs costs itself and nothing else.

    Parameters
    ----------
    tasks : sequence of Task
    target : Target
    scratch : path
        A folder that nobody else writes to.
    """

    def __init__(self, tasks: Sequence[Task], target: tvm.target.Target, scratch: Path) -> None:
        self.tasks = tasks
        self.target = target
        for number, task in enumerate(tasks):
            write_task(scratch, number, task)
        self.builder = ms.builder.LocalBuilder(
            f_build=build_choices,
            f_export=partial(export_into, scratch),
            max_workers=tasks[0].vdevice.cores,
            timeout_sec=_BUILD_SECONDS,
        )
        self.runner = ms.runner.LocalRunner(
            timeout_sec=_RUN_SECONDS,
            f_alloc_argument=name_choices,
            f_run_evaluator=partial(run_choices, scratch),
        )

    def measure(self, wanted: Sequence[tuple[int, Sequence[int]]]) -> list[ms.runner.RunnerResult]:
        """Measure choices: each time some of one task, by their numbers.

        Returns
        -------
        list of RunnerResult
            The seconds as :func:`~tvm_rammer.tuning.worker.run_choices` has them, or an error.
        """
        if not wanted:
            return []
        workloads = {place: self.tasks[place].workload() for place, _ in wanted}
        built = self.builder.build(
            [
                ms.builder.BuilderInput(standing_for(workloads[place], numbers), self.target)
                for place, numbers in wanted
            ]
        )
        return [
            ms.runner.RunnerResult(None, each.error_msg)
            if each.error_msg
            else self._run(str(each.artifact_path), [place, *numbers])
            for (place, numbers), each in zip(wanted, built, strict=True)
        ]

    def _run(self, path: str, numbers: Sequence[int]) -> ms.runner.RunnerResult:
        info = ms.arg_info.TensorInfo("int64", list(numbers))
        (future,) = self.runner.run([ms.runner.RunnerInput(path, "cpu", [info])])
        Path(path).unlink(missing_ok=True)
        return future.result()


def seconds_of(result: ms.runner.RunnerResult) -> float:
    """The seconds of one choice; infinite if it failed."""
    return float(result.run_secs[0]) if result.run_secs else inf


def failure(result: ms.runner.RunnerResult) -> str:
    """What went wrong, in a line; empty if nothing did."""
    if not result.error_msg:
        return ""
    last: str = str(result.error_msg).strip().splitlines()[-1]
    return last.partition("TuningError: ")[2] or last


@contextmanager
def without_intrinsics() -> Iterator[None]:
    """Spare the import of TVM's tensor intrinsics: no choice has any, and they take 11 s to parse.

    A module of that name, which is empty and gone afterwards, is what MetaSchedule finds.
    """
    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]
