"""Tuning operators: MetaSchedule proposes choices, they are measured, and winners race."""

from __future__ import annotations

import errno
import importlib.util
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.errors import TuningError, last_line
from tvm_rammer.interrupts import interrupts
from tvm_rammer.machine.vdevice import positive_count
from tvm_rammer.schedule.median_interval import median_interval
from tvm_rammer.tuning.bench import Bench, failure, seconds_of, without_intrinsics
from tvm_rammer.tuning.budget import TaskProgress, next_task
from tvm_rammer.tuning.database import RACES, RECORDS, WORKLOADS, Database, TaskRace
from tvm_rammer.tuning.folder import locked_folder, repair
from tvm_rammer.tuning.fronts import (
    RacedChoice,
    chosen_front,
    fastest_by_tiles,
    is_undecided,
    latest,
    proved,
)
from tvm_rammer.tuning.journal import Journal, Progress
from tvm_rammer.tuning.moved_data import moved_seconds
from tvm_rammer.tuning.search import AT_ONCE, Proposal, Search
from tvm_rammer.tuning.space import EmittedFeatures, trace_of
from tvm_rammer.tuning.task import Task
from tvm_rammer.tuning.tracker import Tracker
from tvm_rammer.units import listed
from tvm_rammer.whole_files import working_folder

#: What tuning needs besides TVM, which names it only where it is missing.
_NEEDED = ("xgboost", "psutil", "cloudpickle")
#: Of what is likely, so many: operators come up sooner for their first.
_LIKELY_AT_ONCE = 3
#: What MetaSchedule records of a choice that failed.
_FAILED = 1e10


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
    bound : float
        Seconds that no choice can beat; 0 if they are not known.
    """

    name: str
    task: Task
    uses: int
    bound: float = 0.0


#: Seconds of the plan that hang on each operator, and seconds of the plan, for the seconds that
#: each operator takes one core.
Weigh = Callable[[Sequence[float]], "tuple[list[float], float]"]


def tune_tasks(
    tasks: Sequence[WeightedTask],
    target: tvm.target.Target,
    folder: str | os.PathLike[str],
    trials: int,
    *,
    seed: int = 1,
    weigh: Weigh | None = None,
    spaces: Sequence[str] = ("template",),
    tracker: Tracker | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    finish: Callable[[Database, Journal], None] = lambda database, journal: None,
) -> Database:
    """Tune operators.

    Parameters
    ----------
    tasks : sequence of WeightedTask
    target : Target
        This machine, or those of a tracker.
    folder : path
        Of the database; a session that ended goes on with what it measured.
    trials : int
        Choices to try in all, those that the folder has of these operators among them.
    seed : int
        Of the search.
    weigh : callable, optional
        What hangs on each operator; if not given, all that its uses take.
    spaces : sequence of str
        Of :data:`~tvm_rammer.tuning.task.SPACES`: where choices are looked for, in turns.
    tracker : Tracker, optional
        Of the machines to measure on.
    watch : callable
        Called with the progress after every batch of measurements.
    finish : callable
        Called at the end, while the folder is still this process's alone.

    Raises
    ------
    InputError
        If ``trials`` is no number from 1, or the folder cannot be written.
    TuningError
        If a library is missing that MetaSchedule needs, another process tunes into the folder, an
        operator cannot be measured as it is without tuning, a tracker has no server (any more), or
        the disk is full.
    """
    positive_count("trials", trials)
    _require()
    path = Path(folder)
    with (
        _told_of_a_full_disk(path),
        locked_folder(path),
        working_folder(path) as scratch,
        _quietly(),
        without_intrinsics(),
        interrupts() as interrupted,
    ):
        journal = Journal(path, watch)
        for line in repair(path):
            journal.note(f"taken out: {line}")
        bench = Bench([each.task for each in tasks], target, scratch, tracker, journal.note)
        session = _Session(
            tasks, target, path, bench, trials, seed, weigh, journal, spaces, interrupted
        )
        session.run()
        finish(Database(path), journal)
    return Database(path)


@contextmanager
def _told_of_a_full_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TuningError(
            f"{path}: {error.strerror}; make room, and tune again: it goes on where it was"
        ) from error


class _Session:
    """What is known while a session runs."""

    def __init__(
        self,
        tasks: Sequence[WeightedTask],
        target: tvm.target.Target,
        path: Path,
        bench: Bench,
        trials: int,
        seed: int,
        weigh: Weigh | None,
        journal: Journal,
        spaces: Sequence[str],
        interrupted: Callable[[], bool],
    ) -> None:
        self.tasks = tasks
        self.interrupted = interrupted
        self.target = target
        self.path = path
        self.trials = trials
        self.journal = journal
        self.plan_gain = 1.0
        self.weigh = weigh or self._weights_of_uses
        self.bench = bench
        self.database = ms.database.JSONDatabase(str(path / WORKLOADS), str(path / RECORDS))
        self.workloads = [self.database.commit_workload(each.task.workload()) for each in tasks]
        known = Database(path)
        self.places = [known.place(each.task) for each in tasks]
        self.tried = [dict(known.tried(each.task)) for each in tasks]
        self.races = [
            {number: list(some) for number, some in known.races(each.task).items()}
            for each in tasks
        ]
        self.progress = [TaskProgress(bound=each.bound) for each in tasks]
        features = EmittedFeatures({f"{each.name}, template": each.task for each in tasks})
        self.cost_model = ms.cost_model.XGBModel(
            extractor=features, num_warmup_samples=AT_ONCE, verbose_eval=0
        )
        self.seed = seed
        self.spaces = spaces
        self.searches: dict[int, deque[Search]] = {}

    def run(self) -> None:
        """Measure what is made without tuning, then where most is expected to be gained."""
        self._measure_untuned()
        self._measure([])
        untuned_plan = self.weigh([each.untuned for each in self.progress])[1]
        while (left := self.trials - sum(map(len, self.tried))) > 0:
            weights, plan = self.weigh([self._seconds(k) for k in range(len(self.tasks))])
            self.plan_gain = untuned_plan / plan if plan else 1.0
            number = next_task(self.progress, weights)
            if number is None:
                self.journal.note("no gain is near")
                break
            self._batch(number, min(left, AT_ONCE))
        while self._measure_races():
            pass

    def _weights_of_uses(self, seconds: Sequence[float]) -> tuple[list[float], float]:
        weights = [
            each.uses * one if one < inf else 0.0
            for each, one in zip(self.tasks, seconds, strict=True)
        ]
        return weights, sum(weights)

    def _seconds(self, number: int) -> float:
        """The seconds of an operator as a build would make it now."""
        front = chosen_front(proved(self.races[number]), self._veus(number))
        return self.progress[number].untuned * (front[0].cost if front else 1.0)

    def _veus(self, number: int) -> int:
        return self.tasks[number].task.vdevice.num_veus

    def _measure_untuned(self) -> None:
        """So that no choice can be worse unnoticed."""
        for number, tried in enumerate(self.tried):
            if 0 in tried:
                self._start(number)
        missing = [number for number, tried in enumerate(self.tried) if 0 not in tried]
        left = max(0, self.trials - sum(map(len, self.tried)))
        wanted = missing[:left]
        results = self._measure([(number, 0) for number in wanted])
        for number, result in zip(wanted, results, strict=True):
            each = self.tasks[number]
            if error := failure(result):
                raise TuningError(
                    f"{each.name} cannot be measured as it is without tuning: {error}"
                )
            trace = trace_of(each.task.workload(), len(each.task.choices), 0)
            self._keep(number, 0, trace, result)
            self._start(number)
            self._tell(number, 1)

    def _start(self, number: int) -> None:
        """Set out from what was measured of an operator."""
        progress, tried = self.progress[number], self.tried[number]
        progress.untuned, progress.best = tried[0], min(tried.values())

    def _batch(self, number: int, most: int) -> None:
        """Measure what is likely for an operator, and then what searches of its spaces propose."""
        task, tried = self.tasks[number].task, self.tried[number]
        if "template" in self.spaces and task.has("template"):
            likely = [choice for choice in task.likely if choice not in tried]
            if likely:
                self._try_likely(number, likely[: min(most, _LIKELY_AT_ONCE)])
                return
        self._search(number, most)

    def _try_likely(self, number: int, choices: Sequence[int]) -> None:
        """Measure a few of what machines like this one would take, before anything is learnt."""
        task = self.tasks[number].task
        results = self._measure([(number, choice) for choice in choices])
        for choice, result in zip(choices, results, strict=True):
            trace = trace_of(task.workload(), len(task.choices), choice)
            self._keep(number, choice, trace, result)
        self.progress[number].glanced(min(map(seconds_of, results)))
        self._tell(number, len(choices))

    def _search(self, number: int, most: int) -> None:
        """Measure what the search proposes for an operator, of its spaces in turns."""
        searches = self._searches(number)
        fresh: list[Proposal] = []
        while searches and not (fresh := searches[0].proposed(self.tried[number])[:most]):
            searches.popleft()
        if not searches:
            self.progress[number].exhausted = True
            return
        results = self._measure([(number, choice) for choice, _ in fresh])
        for (choice, candidate), result in zip(fresh, results, strict=True):
            self._keep(number, choice, candidate.sch.trace, result)
        searches[0].learn(fresh, results)
        searches.rotate(-1)
        self.progress[number].took(min(map(seconds_of, results)))
        self._tell(number, len(fresh))

    def _searches(self, number: int) -> deque[Search]:
        """MetaSchedule's searches for an operator, which know what earlier sessions measured."""
        if number not in self.searches:
            each, workload = self.tasks[number], self.workloads[number]
            records = [
                record
                for record in self.database.get_all_tuning_records()
                if record.workload.same_as(workload) and float(record.run_secs[0]) < _FAILED
            ]
            self.searches[number] = deque()
            for space in self.spaces:
                try:
                    found = Search(
                        space,
                        f"{each.name}, {space}",
                        each.task,
                        self.target,
                        self.cost_model,
                        records,
                        self.seed + number,
                    )
                except Exception as error:
                    # MetaSchedule's rules take most operators: the others keep what they have.
                    self.journal.note(f"{each.name} has no {space} space: {last_line(error)}")
                    continue
                self.searches[number].append(found)
        return self.searches[number]

    def _keep(self, number: int, choice: int, trace: Any, result: ms.runner.RunnerResult) -> None:
        """A record of a choice that was measured, or that failed."""
        seconds = seconds_of(result)
        kept = _FAILED if seconds == inf else seconds
        workload = self.workloads[number]
        self.database.commit_tuning_record(
            ms.database.TuningRecord(trace, workload, [kept], self.target, [])
        )
        self.tried[number][choice] = seconds
        if error := failure(result):
            self.journal.failed(self.tasks[number].name, error)

    def _measure(self, wanted: Sequence[tuple[int, int]]) -> list[ms.runner.RunnerResult]:
        """Measure choices, and with them the races that earlier ones have brought up."""
        races = [
            (number, [*range(-len(self.tasks[number].task.finer), 1), *challengers])
            for number in range(len(self.tasks))
            if (challengers := self._challengers(number))
        ]
        alone = [(number, [choice]) for number, choice in wanted]
        results = self.bench.measure([*alone, *races])
        if self.interrupted():
            # MetaSchedule has swallowed it, and what it broke off may look like a slow choice.
            raise KeyboardInterrupt
        for (number, numbers), result in zip(races, results[len(wanted) :], strict=True):
            self._keep_race(number, numbers, result)
        return results[: len(wanted)]

    def _measure_races(self) -> bool:
        """Measure what earlier measurements have brought up; False if that is nothing."""
        pending = any(self._challengers(number) for number in range(len(self.tasks)))
        if pending:
            self._measure([])
        return pending

    def _challengers(self, number: int) -> list[int]:
        """What is to run in turns with the untuned choices: what looks good, and what once won."""
        races = self.races[number]
        promising = self._promising(number)
        new = [k for k in promising if k not in races or is_undecided(races[k])]
        front = [each.number for each in chosen_front(latest(races), self._veus(number))]
        # All of them again where one may have been lucky: what is compared runs at the same time.
        again = [k for k in front if k not in new]
        return [*new, *again] if any(len(races[k]) == 1 for k in front) else new

    def _keep_race(
        self, number: int, numbers: Sequence[int], result: ms.runner.RunnerResult
    ) -> None:
        each, races = self.tasks[number], self.races[number]
        if error := failure(result):
            self.journal.failed(each.name, f"a race: {error}")
            lost = (inf, inf, inf)
            raced = [RacedChoice(k, 1, "", lost) for k in numbers if k > 0]
        else:
            seconds = list(map(float, result.run_secs))
            race = made_race(self.places[number], each.task, numbers, seconds)
            with open(self.path / RACES, "a") as file:
                file.write(race.line())
            raced = list(race.raced)
        for one in raced:
            races.setdefault(one.number, []).append(one)
        self._tell(number, 0)

    def _promising(self, number: int) -> list[int]:
        """What a build would take if all had run in turns as they ran alone."""
        task, races = self.tasks[number].task, self.races[number]
        untuned = self.progress[number].untuned
        if untuned == inf:
            return []
        # Of what is slower by itself nobody asks what its data take besides.
        moved = {
            k: moved_seconds(task, k) if seconds < untuned else 0.0
            for k, seconds in self.tried[number].items()
            if k > 0
        }
        tuned = {k: self.tried[number][k] + seconds for k, seconds in moved.items()}
        believed = [
            replace(races[k][-1], alike=repr(task.choice(k).rounding))
            if k in races and not is_undecided(races[k])
            else _believed(task, k, tuned[k] / untuned)
            for k in fastest_by_tiles(tuned, task.num_tiles)
        ]
        plain = [_believed(task, -k, 1.0) for k in range(len(task.finer) + 1)]
        front = chosen_front([*plain, *believed], self._veus(number))
        return [each.number for each in front]

    def _tell(self, number: int, count: int) -> None:
        progress, tried = self.progress[number], sum(map(len, self.tried))
        self.journal.tell(
            Progress(
                self.tasks[number].name,
                tried,
                self.trials,
                self._seconds(number),
                progress.untuned,
                self.plan_gain,
                self.journal.seconds_left(max(0, self.trials - tried)),
            ),
            count,
        )


def made_race(place: int, task: Task, numbers: Sequence[int], seconds: Sequence[float]) -> TaskRace:
    """A race of choices, 0 among them, from their seconds round by round."""
    rounds = [seconds[k : k + len(numbers)] for k in range(0, len(seconds), len(numbers))]
    untuned = [one[numbers.index(0)] for one in rounds]
    middle = median_interval(untuned)[0]
    raced = [
        RacedChoice(
            number,
            task.num_tiles(number),
            task.tuner.alike(task.choice(number)) if number > 0 else "",
            median_interval([one[k] / base for one, base in zip(rounds, untuned, strict=True)]),
            moved_seconds(task, number) / middle,
        )
        for k, number in enumerate(numbers)
    ]
    return TaskRace(place, middle, tuple(raced))


def _believed(task: Task, number: int, ratio: float) -> RacedChoice:
    alike = repr(task.choice(number).rounding) if number > 0 else ""
    return RacedChoice(number, task.num_tiles(number), alike, (ratio, ratio, ratio))


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


def _require() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise TuningError(f"tuning needs {listed(missing)}: pip install 'tvm-rammer[tune]'")
