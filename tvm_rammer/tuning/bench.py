"""Where choices are built, checked and timed: MetaSchedule's builder and runner."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from types import ModuleType

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.errors import TuningError
from tvm_rammer.machine import VDevice
from tvm_rammer.tuning.sketch_choice import is_sketch
from tvm_rammer.tuning.space import standing_for
from tvm_rammer.tuning.task import Task
from tvm_rammer.tuning.tracker import NoServerError, ServerLostError, Tracker
from tvm_rammer.tuning.worker import (
    build_choices,
    export_into,
    name_choices,
    run_choices,
    write_task,
    write_trace,
)
from tvm_rammer.units import counted

#: Seconds for building, and for checking and timing; the first time with loops as written.
_BUILD_SECONDS, _RUN_SECONDS = 120.0, 90.0
#: Errors of measurements that say nothing of what was measured: the second is of a process here
#: that nothing was heard in.
_LOST = (ServerLostError.__name__, "Subprocess terminated")
#: Our own errors in the text of a traceback.
_OURS = re.compile(r"^tvm_rammer\.[\w.]*Error: ")


class Bench:
    """Builds choices in worker processes side by side, and times one after the other.

    With a tracker each of its servers times one at a time. What crashes or hangs costs itself and
    nothing else; what a server takes along that dies is measured again.

    Parameters
    ----------
    tasks : sequence of Task
    target : Target
    scratch : path
        A folder that nobody else writes to.
    tracker : Tracker, optional
        Of other machines to measure on.
    note : callable
        Called with a line on what was measured again.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        target: tvm.target.Target,
        scratch: Path,
        tracker: Tracker | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.tasks = tasks
        self.target = target
        self.scratch = scratch
        self.tracker, self.note = tracker, note
        for number, task in enumerate(tasks):
            write_task(scratch, number, task)
        self.builder = ms.builder.LocalBuilder(
            f_build=partial(build_choices, scratch),
            f_export=partial(export_into, scratch),
            max_workers=workers_for(tasks[0].vdevice),
            timeout_sec=_BUILD_SECONDS,
        )
        self.runner = (
            tracker.runner(scratch)
            if tracker
            else ms.runner.LocalRunner(
                timeout_sec=_RUN_SECONDS,
                f_alloc_argument=name_choices,
                f_run_evaluator=partial(run_choices, scratch),
            )
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
        for place, numbers in wanted:
            for number in filter(is_sketch, numbers):
                write_trace(self.scratch, number, self.tasks[place].known.traces[number])
        workloads = {place: self.tasks[place].workload() for place, _ in wanted}
        built = self.builder.build(
            [
                ms.builder.BuilderInput(standing_for(workloads[place], numbers), self.target)
                for place, numbers in wanted
            ]
        )
        results = [ms.runner.RunnerResult(None, each.error_msg) for each in built]
        inputs = {
            k: _input(str(each.artifact_path), [place, *numbers])
            for k, ((place, numbers), each) in enumerate(zip(wanted, built, strict=True))
            if not each.error_msg
        }
        self._run(inputs, results)
        lost = [k for k in inputs if self.tracker and _error_name(results[k]) in _LOST]
        if lost:
            self.note(f"servers were lost: {counted(len(lost), 'measurement')} repeated on others")
            self._run({k: inputs[k] for k in lost}, results)
        for each in inputs.values():
            Path(str(each.artifact_path)).unlink(missing_ok=True)
        return results

    def _run(
        self,
        inputs: Mapping[int, ms.runner.RunnerInput],
        results: list[ms.runner.RunnerResult],
    ) -> None:
        """Fill in results.

        Raises
        ------
        TuningError
            If there is nobody to measure.
        """
        futures = self.runner.run(list(inputs.values()))
        for k, future in zip(inputs, futures, strict=True):
            results[k] = future.result()
        for k in inputs:
            if _error_name(results[k]) == NoServerError.__name__:
                raise TuningError(f"{failure(results[k])}; the same call goes on where it was")


def workers_for(vdevice: VDevice) -> int:
    """Processes or threads that work here for a device, which may be elsewhere and larger."""
    return min(vdevice.cores, len(os.sched_getaffinity(0)))


def _input(path: str, numbers: Sequence[int]) -> ms.runner.RunnerInput:
    return ms.runner.RunnerInput(path, "cpu", [ms.arg_info.TensorInfo("int64", list(numbers))])


def seconds_of(result: ms.runner.RunnerResult) -> float:
    """The seconds of one choice; infinite if it failed."""
    return float(result.run_secs[0]) if result.run_secs else inf


def failure(result: ms.runner.RunnerResult) -> str:
    """What went wrong, in a line; empty if nothing did."""
    if not result.error_msg:
        return ""
    last: str = str(result.error_msg).strip().splitlines()[-1]
    return _OURS.sub("", last)


def _error_name(result: ms.runner.RunnerResult) -> str:
    """The class of the error in a result, or what MetaSchedule says in its place."""
    last = str(result.error_msg or "").strip().splitlines()[-1:]
    return last[0].partition(": ")[0].rpartition(".")[2] if last else ""


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
