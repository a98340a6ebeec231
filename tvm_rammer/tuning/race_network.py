"""Runs a network by records in turns with the one without, and keeps of the records what pays.

Operators run alone when they are tuned: beside others, and with the caches that those leave, a
gain may be none. Where all together do not pay, the half with the largest gains is tried, and so
on; where nothing does, the network stays as it is without records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

import tvm
from tvm import tirx

from tvm_rammer.errors import last_line
from tvm_rammer.frontend import LoadedModel
from tvm_rammer.kernel.scheduled import Choice
from tvm_rammer.machine import VDevice
from tvm_rammer.region.kernel_library import Tuned
from tvm_rammer.runtime.build import build
from tvm_rammer.runtime.graph_module import GraphModule
from tvm_rammer.schedule.median_interval import median_interval
from tvm_rammer.tuning.answers import example
from tvm_rammer.tuning.database import NETWORKS, Database
from tvm_rammer.tuning.journal import Journal
from tvm_rammer.tuning.networks import NetworkRace, TakenChoices
from tvm_rammer.tuning.session import WeightedTask
from tvm_rammer.tuning.task import Task

#: A race ends after so many seconds, but has so many rounds at least and at most.
_SECONDS, _FEWEST_ROUNDS, _MOST_ROUNDS = 5.0, 15, 101
#: A sample is as many runs as take about this long; the first ones of a turn find other caches.
_SAMPLE_SECONDS, _UNTIMED_RUNS = 2e-3, 2
#: What is kept takes at most this part of the time without records, without a doubt that matters.
_PAYS = 1.0

Chosen = list[tuple[int, tuple[int, ...]]]
#: The seconds of every round of two runs that take turns.
Turns = Callable[[Callable[[], object], Callable[[], object]], "list[tuple[float, float]]"]


@dataclass(frozen=True)
class _Part:
    """The records of some workloads."""

    database: Database
    workloads: frozenset[int]

    def tuned(self, vdevice: VDevice, winograd_tolerance: float) -> Tuned:
        """As :meth:`Database.tuned`, whether networks take it or not."""

        def choices(func: tirx.PrimFunc, constants: frozenset[int]) -> Sequence[Choice]:
            task = Task(func, tuple(sorted(constants)), vdevice, winograd_tolerance)
            if self.database.place(task) not in self.workloads:
                return ()
            return [task.choice(each.number) for each in self.database.front(task)]

        return choices


def keep_what_pays(
    model: LoadedModel,
    target: tvm.target.Target,
    num_veus: int | None,
    tasks: Sequence[WeightedTask],
    database: Database,
    journal: Journal,
    turns: Turns | None = None,
) -> None:
    """Race a network once for what a build takes of each of its operators, and keep the result.

    Parameters
    ----------
    model, target, num_veus, tasks, turns
        As for :func:`race_network`.
    database : Database
        A folder of this process's own.
    journal : Journal
        Is told what came out, or why there is nothing.
    """
    chosen, places = chosen_by_races(tasks, database), _places(tasks, database)
    known = [race for race in database.networks() if race.workloads == places]
    if not chosen or (known and known[-1].is_of(chosen)):
        return
    try:
        race = race_network(model, target, num_veus, tasks, database, turns or take_turns)
    except Exception as error:
        # What was tuned is worth keeping, also of a network that cannot run by itself.
        journal.network(
            f"the network could not run in turns with the one without: {last_line(error)}"
        )
        return
    with open(database.folder / NETWORKS, "a") as file:
        file.write(race.line())
    journal.network(race.words())


def race_network(
    model: LoadedModel,
    target: tvm.target.Target,
    num_veus: int | None,
    tasks: Sequence[WeightedTask],
    database: Database,
    turns: Turns,
) -> NetworkRace:
    """Find out which of the tuned operators of a network pay in it; there are some.

    Parameters
    ----------
    model : LoadedModel
    target : Target
        This machine.
    num_veus : int, optional
    tasks : sequence of WeightedTask
        Its operators.
    database : Database
    turns : callable
        Times two networks.
    """
    gains = sorted(_gains(tasks, database), reverse=True)
    base = _instance(build(model, target, num_veus=num_veus))
    count, kept = len(gains), frozenset[int]()
    while True:
        part = frozenset(place for _, place, _ in gains[:count])
        records = _Part(database, part)
        tuned = _instance(build(model, target, num_veus=num_veus, database=records))
        rounds = turns(base.run, tuned.run)
        ratio = median_interval([after / before for before, after in rounds])
        if ratio[2] <= _PAYS:
            kept = part
        if kept or count == 1:
            break
        count = ceil(count / 2)
    taken = (TakenChoices(place, numbers, place in kept) for _, place, numbers in gains)
    return NetworkRace(
        _places(tasks, database),
        tuple(sorted(taken, key=lambda each: each.workload)),
        ratio,
        median(before for before, _ in rounds),
    )


def chosen_by_races(tasks: Sequence[WeightedTask], database: Database) -> Chosen:
    """What a build takes of each workload by the races of its operator alone."""
    return sorted((place, numbers) for _, place, numbers in _gains(tasks, database))


def _places(tasks: Sequence[WeightedTask], database: Database) -> tuple[int, ...]:
    return tuple(sorted({database.place(each.task) for each in tasks}))


def _gains(
    tasks: Sequence[WeightedTask], database: Database
) -> list[tuple[float, int, tuple[int, ...]]]:
    """Seconds that tuned operators gain in a run, one after the other; workloads and choices."""
    found = []
    for each in tasks:
        if front := database.front(each.task):
            gain = each.uses * database.tried(each.task).get(0, 0.0) * (1 - front[0].cost)
            numbers = tuple(one.number for one in front)
            found.append((gain, database.place(each.task), numbers))
    return found


def _instance(library: Any) -> GraphModule:
    """An instance with some inputs."""
    module: GraphModule = library.create()
    for number, info in enumerate(library.description.inputs):
        module.set_input(number, example(info.static_shape(), info.dtype, number))
    return module


def take_turns(
    first: Callable[[], object], second: Callable[[], object]
) -> list[tuple[float, float]]:
    """Time two runs in turns; each begins every other round.

    Returns
    -------
    list of (float, float)
        Seconds of a run of both, round by round.
    """
    runs = (first, second)
    counts = [_count(run) for run in runs]
    found: list[tuple[float, float]] = []
    end = time.perf_counter() + _SECONDS
    while len(found) < _FEWEST_ROUNDS or (len(found) < _MOST_ROUNDS and time.perf_counter() < end):
        seconds = [0.0, 0.0]
        for k in (0, 1) if len(found) % 2 else (1, 0):
            for _ in range(_UNTIMED_RUNS):
                runs[k]()
            seconds[k] = _seconds(runs[k], counts[k])
        found.append((seconds[0], seconds[1]))
    return found


def _count(run: Callable[[], object]) -> int:
    run()
    return max(1, round(_SAMPLE_SECONDS / median(_seconds(run, 1) for _ in range(3))))


def _seconds(run: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count
