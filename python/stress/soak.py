"""Run plans of random models for long, under CPU load: every run ends, always with the same bits.

The bodies are compiled once for each model and every plan is another table for them, run by a fresh
thread with a worker for each vEU, more of them than cores if need be. Synchronising costs nothing
to the policies here, so that tiny operators are spread over the vEUs and wait for each other.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import ceil

import numpy as np
from fuzzing.random_graphs import Shape
from fuzzing.random_models import random_model

from stress.compiled_regions import Compiled, Source, in_new_thread, same_bits
from tvm_rammer.backend.cpu.host import configure_pool
from tvm_rammer.errors import RammerError
from tvm_rammer.schedule import choices

_MOST_VEUS = 4
#: Many waits in every run: on busy cores, to start a run costs more than to wait.
_SHAPES: tuple[Shape, ...] = ("ladder", "mixed", "wide")
_OPERATORS = (200, 500)
_PLANS_PER_MODEL = 5
#: Runs between two looks at the outputs are as many as this at most.
_LONGEST_BLOCK = 16
#: Runs of a plan in which nobody waits.
_RUNS_WITHOUT_WAITS = 100
#: Seconds in which a block of runs must end; a wait gives the run up after half of them.
_PATIENCE = 120.0
#: Computes until nobody holds the other end of its input: also if its parent was killed.
_BUSY = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()
while True: pass
"""

Report = Callable[[int, str], None]


@dataclass(frozen=True)
class Soaked:
    """A plan that was run, and how often.

    ``synchronisations`` are waits that were executed, each for an rTask of another worker.
    """

    model: str
    policy: str
    veus: int
    workers: int
    waits: int
    runs: int
    synchronisations: int
    seconds: float


@dataclass
class _Case:
    """A plan with two sets of inputs, and what one worker computed of each."""

    model: str
    compiled: Compiled
    inputs: tuple[list[np.ndarray], ...]
    wanted: tuple[list[np.ndarray], ...]

    @property
    def label(self) -> str:
        program = self.compiled.program
        return f"{self.model}, {program.policy}, {program.num_veus} vEUs"


def soak(
    synchronisations: int,
    plans: int = 100,
    seed: int = 0,
    report: Report = lambda done, label: None,
    before: Sequence[Soaked] = (),
) -> Iterator[Soaked]:
    """Run plans until so many synchronisations are done, as evenly spread over them as can be.

    Parameters
    ----------
    synchronisations, plans : int
        At least so many.
    seed : int
        The same seed gives the same plans.
    report : callable
        Called with the synchronisations that are done, and which plan runs.
    before : sequence of Soaked
        What was yielded for the same seed before an interruption: these plans do not run again.

    Yields
    ------
    Soaked
        A plan that always gave what one worker gives.

    Raises
    ------
    RammerError
        A result differed, or a block of runs did not end in two minutes.
    """
    done = sum(soaked.synchronisations for soaked in before)
    for number, case in zip(count(len(before)), _cases(seed, len(before)), strict=False):
        if number >= plans and done >= synchronisations:
            return
        if case.compiled.program.num_veus == 1:
            quota = 0
        else:
            rest = [n for n in range(number, plans) if _veus(n) > 1]
            quota = ceil((synchronisations - done) / max(1, len(rest)))
        soaked = _watched(case, quota, partial(_report, report, done, case.label))
        done += soaked.synchronisations
        yield soaked


@contextmanager
def busy(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Other processes that compute as long as the context lasts, and this process."""
    running = [
        subprocess.Popen([sys.executable, "-c", _BUSY], stdin=subprocess.PIPE)
        for _ in range(processes)
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _report(report: Report, before: int, label: str, more: int) -> None:
    report(before + more, label)


def _veus(number: int) -> int:
    return 1 + number % _MOST_VEUS


def _cases(seed: int, first: int = 0) -> Iterator[_Case]:
    """Plans without end: every policy and plans that no policy makes, with 1 to 4 vEUs in turns."""
    policies = (*choices(), "random")
    for group in count(first // _PLANS_PER_MODEL):
        choice = random.Random(f"{seed}/{group}")
        shape = _SHAPES[group % len(_SHAPES)]
        operators = choice.randint(*_OPERATORS)
        source = Source.of_module(random_model(choice.randrange(2**32), shape, operators))
        inputs = (source.inputs(0), source.inputs(1))
        alone = source.compile(source.plan("sequential", 1))
        wanted = tuple(in_new_thread(partial(alone.run, x), workers=1) for x in inputs)
        start, stop = group * _PLANS_PER_MODEL, (group + 1) * _PLANS_PER_MODEL
        for number in range(max(first, start), stop):
            policy = policies[number % len(policies)]
            name = f"random{number}" if policy == "random" else policy
            compiled = source.compile(source.plan(name, _veus(number)))
            yield _Case(f"{shape} of {operators}", compiled, inputs, wanted)


def _watched(case: _Case, quota: int, report: Callable[[int], None]) -> Soaked:
    """Run a plan in a thread of its own, as long as it makes progress."""
    soaker = _Soaker(case, quota)
    thread = threading.Thread(target=soaker.run, daemon=True)
    thread.start()
    seen, since = 0, time.monotonic()
    while thread.is_alive():
        thread.join(0.1)
        report(soaker.synchronisations)
        if soaker.runs != seen:
            seen, since = soaker.runs, time.monotonic()
        elif time.monotonic() - since > _PATIENCE:
            raise RammerError(
                f"{case.label}: run {seen} has not ended in {_PATIENCE:.0f} s; "
                "look where its threads are"
            )
    if soaker.error:
        raise soaker.error
    return soaker.result()


class _Soaker:
    """Runs one plan in blocks and looks at the outputs after each of them."""

    def __init__(self, case: _Case, quota: int) -> None:
        self.case = case
        self.quota = quota
        self.program = case.compiled.program
        self.waits = sum(len(task.waits) for _, _, task in self.program.tasks())
        self.runs = 0
        self.workers = 0
        self.seconds = 0.0
        self.error: Exception | None = None

    @property
    def synchronisations(self) -> int:
        return self.runs * self.waits

    def run(self) -> None:
        """Run until the quota is reached."""
        try:
            self.workers = configure_pool(self.program.num_veus)
            if self.workers != self.program.num_veus:
                raise RammerError(
                    f"{self.case.label}: only {self.workers} workers; unset TVM_NUM_THREADS"
                )
            started = time.monotonic()
            self._blocks()
            self.seconds = time.monotonic() - started
        except Exception as error:
            self.error = error

    def result(self) -> Soaked:
        return Soaked(
            self.case.model,
            self.program.policy,
            self.program.num_veus,
            self.workers,
            self.waits,
            self.runs,
            self.synchronisations,
            self.seconds,
        )

    def _blocks(self) -> None:
        case, choice = self.case, random.Random(self.waits)
        outputs = case.compiled.outputs()
        work = [case.compiled.bind(inputs, outputs) for inputs in case.inputs]
        least = -(-self.quota // self.waits) if self.waits else _RUNS_WITHOUT_WAITS
        for block in count():
            if self.runs >= least:
                return
            for output in outputs:
                output.fill(np.nan)
            for _ in range(choice.randint(1, _LONGEST_BLOCK)):
                work[block % 2]()
                self.runs += 1
            if not same_bits(outputs, case.wanted[block % 2]):
                raise RammerError(f"{case.label}: run {self.runs} gave another result than alone")
