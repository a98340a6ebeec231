"""Tuning all operators of a model on this machine, by MetaSchedule."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import inf
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import Any

import tvm
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.errors import InputError, TuningError
from tvm_rammer.files import write_whole
from tvm_rammer.kernel.scheduled import UNTUNED
from tvm_rammer.machine.vdevice import positive_count
from tvm_rammer.tuning.database import RECORDS, WORKLOADS, Database
from tvm_rammer.tuning.space import EmittedFeatures, space_of, trace_of
from tvm_rammer.tuning.task import Task
from tvm_rammer.tuning.worker import build_choice, no_arguments, time_choice
from tvm_rammer.units import listed

#: What tuning needs besides TVM, which names it only where it is missing.
_NEEDED = ("xgboost", "psutil", "cloudpickle")
#: Choices that are built and timed together, before the cost model learns from them.
_AT_ONCE = 16
#: Of the evolutionary search: lists have some hundred choices, and features take milliseconds.
_POPULATION, _GENERATIONS = 48, 2
#: Seconds for building and for timing one choice.
_BUILD_SECONDS, _RUN_SECONDS = 60.0, 20.0


@dataclass(frozen=True)
class Progress:
    """How far a session is.

    Attributes
    ----------
    task : str
        The operator that was measured last.
    trials, of_trials : int
        Choices tried, of so many at most.
    best, untuned : float
        Seconds of the operator with the best choice so far, and without tuning.
    """

    task: str
    trials: int
    of_trials: int
    best: float
    untuned: float

    @property
    def gain(self) -> float:
        """How many times as fast the best choice is."""
        return self.untuned / self.best if 0 < self.best < inf else 1.0


@dataclass(frozen=True)
class WeightedTask:
    """An operator to tune.

    Attributes
    ----------
    name : str
        For people, its own in a session.
    task : Task
    uses : int
        How often a model has it.
    weight : float
        Modelled seconds of a run that it takes.
    """

    name: str
    task: Task
    uses: int
    weight: float


def tune_tasks(
    tasks: Sequence[WeightedTask],
    target: tvm.target.Target,
    folder: str | os.PathLike[str],
    trials: int,
    *,
    seed: int = 1,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Database:
    """Tune operators.

    Parameters
    ----------
    tasks : sequence of WeightedTask
    target : Target
        This machine.
    folder : path
        Of the database; a session that ended goes on with what it measured.
    trials : int
        Choices to try in all, those of earlier sessions not counted.
    seed : int
        Of the search.
    watch : callable
        Called with the progress after every batch of measurements.

    Returns
    -------
    Database

    Raises
    ------
    InputError
        If ``trials`` is no number from 1, or the folder cannot be written.
    TuningError
        If a library is missing that MetaSchedule needs.
    """
    positive_count("trials", trials)
    _require()
    path = Path(folder)
    with _locked(path):
        return _tuned(tasks, target, path, trials, seed, watch)


def _tuned(
    tasks: Sequence[WeightedTask],
    target: tvm.target.Target,
    path: Path,
    trials: int,
    seed: int,
    watch: Callable[[Progress], None],
) -> Database:
    repair(path)
    vdevice = tasks[0].task.vdevice
    kind, cores = vdevice.kind, vdevice.cores
    builder = ms.builder.LocalBuilder(
        f_build=build_choice, max_workers=cores, timeout_sec=_BUILD_SECONDS
    )
    runner = ms.runner.LocalRunner(
        timeout_sec=_RUN_SECONDS,
        f_alloc_argument=no_arguments,
        f_run_evaluator=partial(time_choice, kind),
    )
    database = ms.database.JSONDatabase(str(path / WORKLOADS), str(path / RECORDS))
    session = _Session(tasks, target, database, builder, runner, trials, watch)
    with _quietly(), _without_intrinsics():
        session.measure_untuned(Database(path) if (path / RECORDS).stat().st_size else None)
        left = trials - session.tried
        if left > 0:
            ms.tune.tune_tasks(
                tasks=[
                    ms.TuneContext(
                        mod=each.task.workload(),
                        target=target,
                        space_generator=space_of(each.task, seed + k),
                        search_strategy=ms.search_strategy.EvolutionarySearch(
                            population_size=_POPULATION,
                            init_min_unmeasured=_AT_ONCE,
                            genetic_num_iters=_GENERATIONS,
                        ),
                        task_name=each.name,
                        rand_state=seed + k,
                        num_threads=cores,
                    )
                    for k, each in enumerate(tasks)
                ],
                task_weights=[each.weight for each in tasks],
                work_dir=str(path),
                max_trials_global=left,
                num_trials_per_iter=_AT_ONCE,
                builder=builder,
                runner=runner,
                database=database,
                cost_model=ms.cost_model.XGBModel(
                    extractor=EmittedFeatures(), num_warmup_samples=_AT_ONCE, verbose_eval=0
                ),
                measure_callbacks=[
                    ms.measure_callback.AddToDatabase(),
                    ms.measure_callback.RemoveBuildArtifact(),
                    ms.measure_callback.UpdateCostModel(),
                    _Watch(session),
                ],
            )
    return Database(path)


class _Session:
    """What is known while a session runs."""

    def __init__(
        self,
        tasks: Sequence[WeightedTask],
        target: tvm.target.Target,
        database: ms.Database,
        builder: ms.Builder,
        runner: ms.Runner,
        trials: int,
        watch: Callable[[Progress], None],
    ) -> None:
        self.tasks = tasks
        self.target = target
        self.database = database
        self.builder = builder
        self.runner = runner
        self.trials = trials
        self.watch = watch
        self.tried = 0
        self.untuned = [inf] * len(tasks)
        self.best = [inf] * len(tasks)

    def measure_untuned(self, known: Database | None) -> None:
        """Measure what is made without tuning, so that no record can be worse unnoticed."""
        for number, each in enumerate(self.tasks):
            measured = known.measured(each.task) if known else []
            if measured:
                self.best[number] = measured[0].seconds
            found = [one.seconds for one in measured if one.choice.text == UNTUNED]
            self.untuned[number] = min(found, default=inf)
        missing = [number for number, seconds in enumerate(self.untuned) if seconds == inf]
        for number, seconds in self._measured(missing[: self.trials]):
            self.untuned[number] = seconds
            self.took(number, [seconds])

    def took(self, number: int, seconds: Sequence[float]) -> None:
        """Choices of a task were tried."""
        self.tried += len(seconds)
        self.best[number] = min([self.best[number], *seconds])
        name, best, untuned = self.tasks[number].name, self.best[number], self.untuned[number]
        self.watch(Progress(name, self.tried, self.trials, best, untuned))

    def _measured(self, numbers: Sequence[int]) -> Iterator[tuple[int, float]]:
        """Build the first choice of tasks side by side, time one after the other, keep records."""
        traces, inputs = [], []
        for number in numbers:
            task = self.tasks[number].task
            workload = task.workload()
            traces.append(trace_of(workload, len(task.choices), 0))
            schedule = s_tir.Schedule(workload)
            traces[-1].apply_to_schedule(schedule, remove_postproc=True)
            inputs.append(ms.builder.BuilderInput(schedule.mod, self.target))
        for number, trace, built in zip(
            numbers, traces, self.builder.build(inputs) if inputs else (), strict=True
        ):
            yield number, self._timed(self.tasks[number], trace, built)

    def _timed(self, each: WeightedTask, trace: Any, built: Any) -> float:
        error = built.error_msg
        if not error:
            path = str(built.artifact_path)
            (future,) = self.runner.run([ms.runner.RunnerInput(path, "cpu", [])])
            rmtree(Path(path).parent, ignore_errors=True)
            result = future.result()
            error = result.error_msg
        if error:
            last = str(error).strip().splitlines()[-1]
            raise TuningError(f"{each.name} cannot be measured as it is without tuning: {last}")
        seconds = [float(run) for run in result.run_secs]
        workload = self.database.commit_workload(each.task.workload())
        self.database.commit_tuning_record(
            ms.database.TuningRecord(trace, workload, seconds, self.target, [])
        )
        return min(seconds)


@derived_object
class _Watch(ms.measure_callback.PyMeasureCallback):
    """Tells a session about every batch."""

    def __init__(self, session: _Session) -> None:
        super().__init__()
        self.session = session

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Any,
        builder_results: Any,
        runner_results: Any,
    ) -> None:
        """A batch was measured."""
        seconds = [
            min(map(float, result.run_secs)) if result.run_secs else inf
            for result in runner_results
        ]
        self.session.took(int(task_id), seconds)


def repair(folder: Path) -> list[str]:
    """Take lines out of a database that are not whole, as a process leaves them that is killed.

    Returns
    -------
    list of str
        What was taken out.
    """
    removed: list[str] = []
    for name in (WORKLOADS, RECORDS):
        path = folder / name
        if not path.exists():
            path.touch()
        lines = path.read_text(errors="replace").splitlines()
        whole = [line for line in lines if _is_json(line)]
        if len(whole) < len(lines):
            # A workload's number is its line.
            if name == WORKLOADS:
                whole = list(takewhile(_is_json, lines))
            removed.append(f"{name}: {len(lines) - len(whole)} lines")
            write_whole(path, "".join(f"{line}\n" for line in whole).encode())
    return removed


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder, made and for this process alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"{folder}: records cannot be written here: {error.strerror}; choose another folder"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise TuningError(
            f"{folder}: another process is tuning into this folder; wait for it, or choose another"
        ) from None
    finally:
        os.close(handle)


@contextmanager
def _quietly() -> Iterator[None]:
    """MetaSchedule reports by logging, several pages for each batch."""
    loggers = [logging.getLogger(name) for name in ("tvm.s_tir.meta_schedule", "tvm")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _without_intrinsics() -> Iterator[None]:
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


def _require() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise TuningError(f"tuning needs {listed(missing)}: pip install 'tvm-rammer[tune]'")
