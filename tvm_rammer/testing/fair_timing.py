"""The fair clock: contenders take turns, each in a process of its own, the others asleep.

Thread pools spin, pin themselves and inherit each other's affinity; two of them in one process, or
awake at once, measure each other. Here every contender has its own process; all are set up and
compared before anything is timed; then, round by round, each runs one block while the others are
stopped. A contender that fails, disagrees or is not installed stays in the results and says why.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from tvm_rammer.errors import InputError
from tvm_rammer.testing.other_load import OtherLoad
from tvm_rammer.testing.timing_process import ContenderError, ContenderProcess, MissingError
from tvm_rammer.testing.timing_results import Outcome, distance, reference_of

#: Rounds that there are however long they take: fewer say nothing about noise.
FEWEST_BLOCKS = 5
#: A block of short runs has up to so many times the runs that were asked for.
_MOST_TIMES = 10


@dataclass(frozen=True)
class TimedContender:
    """What to time.

    Attributes
    ----------
    name : str
    function : str
        ``"module:function"``. It is called in the contender's process with ``arguments`` and
        returns two callables, or three: one that runs once, one that gives the outputs of the last
        run as a list of arrays, and one that gives facts about the contender as plain data.
    arguments : mapping
        Anything that JSON can carry.
    environment : mapping
        Environment variables that must be set before the process begins.
    python : str
        The interpreter, for a contender that lives in another environment.
    """

    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable


@dataclass(frozen=True)
class Settings:
    """How to time.

    Attributes
    ----------
    blocks, runs : int
        Rounds, and timed runs in a block.
    warm_up_s : float
        How long each contender runs before the first round.
    min_block_s, max_block_s, budget_s : float
        A fast contender gets more runs per block, up to ten times as many; a slow one gets fewer,
        and takes no more turns when all its blocks together have taken the budget.
    session_s : float
        No further round begins when all contenders together have taken so long, their set-up
        included; but :data:`FEWEST_BLOCKS` rounds there are.
    tolerance : float
        Relative error up to which outputs agree.
    timeout_s : float
        How long to wait for any answer.
    """

    blocks: int = 10
    runs: int = 20
    warm_up_s: float = 0.5
    min_block_s: float = 0.05
    max_block_s: float = 2.0
    budget_s: float = 60.0
    session_s: float = inf
    tolerance: float = 1e-3
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.runs < 1:
            raise InputError(f"{self.blocks} blocks of {self.runs} runs: both must be at least 1")


def time_contenders(
    contenders: Sequence[TimedContender],
    settings: Settings | None = None,
    progress: Progress | None = None,
    wait: Callable[[], float] | None = None,
) -> list[Outcome]:
    """Time contenders against each other.

    Parameters
    ----------
    contenders : sequence of TimedContender
        Where two groups of equal size disagree about the outputs, the one with the earliest
        contender is believed: put the most trusted first.
    settings : Settings, optional
    progress : rich.progress.Progress, optional
        Where to show how far it is.
    wait : callable, optional
        Called before each round: waits until the machine can be trusted, and tells how many seconds
        that took, by which the session ends later.

    Returns
    -------
    list of Outcome
        One per contender, in their order.
    """
    settings = settings or Settings()
    end = time.monotonic() + settings.session_s
    steps = len(contenders) * (2 + settings.blocks)
    with tempfile.TemporaryDirectory() as folder, _step_display(progress, steps) as step:
        entrants = [
            _Entrant(contender, settings, Path(folder) / f"{number}.npz")
            for number, contender in enumerate(contenders)
        ]
        try:
            for entrant in entrants:
                step(f"{entrant.name}: set-up")
                entrant.set_up()
            _compare(entrants, settings.tolerance)
            for entrant in entrants:
                step(f"{entrant.name}: warm-up")
                entrant.warm_up()
            for number in range(settings.blocks):
                end += wait() if wait else 0.0
                if number >= FEWEST_BLOCKS and time.monotonic() > end:
                    break
                # Each round begins with another contender: nobody always follows the same one.
                first = number % len(entrants)
                for entrant in entrants[first:] + entrants[:first]:
                    step(f"{entrant.name}: block {number + 1} of {settings.blocks}")
                    entrant.block()
            for entrant in entrants:
                entrant.report()
        finally:
            for entrant in entrants:
                entrant.end()
    return [entrant.outcome for entrant in entrants]


class _Entrant:
    """A contender, its process and what is known about it; what fails ends its own part only."""

    def __init__(self, contender: TimedContender, settings: Settings, outputs: Path) -> None:
        self.name = contender.name
        self.outcome = Outcome(contender.name, "ok")
        self.results: list[np.ndarray] = []
        self._contender, self._settings, self._outputs = contender, settings, outputs
        self._process: ContenderProcess | None = None
        self._runs = settings.runs
        self._used_s = 0.0
        self._others_s = 0.0

    def set_up(self) -> None:
        """Start the process, make the contender, fetch its outputs."""
        self._attempt("set-up", self._set_up)

    def warm_up(self) -> None:
        """Run for a while; decide how many runs make a block."""
        self._attempt("warm-up", self._warm_up)

    def block(self) -> None:
        """Take a turn, unless the budget is used up."""
        if self._used_s < self._settings.budget_s:
            self._attempt("timing", self._block)

    def report(self) -> None:
        """Ask for the peak of memory."""
        self._attempt("report", lambda: self._note(peak_mb=self._ask("report")["peak_mb"]))

    def compare(self, want: Sequence[np.ndarray], reference: str) -> None:
        """Take the contender out of the race when its outputs are not the reference's."""
        error, allowed = distance(self.results, want), self._settings.tolerance
        self._note(error=error)
        if error > allowed:
            note = f"relative error {error:.2g} against {reference} (allowed: {allowed:.2g})"
            self._note(status="disagrees", note=note)
        self.results = []

    def end(self) -> None:
        """End the process."""
        if self._process:
            self._process.end()
            self._process = None

    def _set_up(self) -> None:
        contender = self._contender
        self._process = ContenderProcess(
            contender.python,
            contender.environment,
            self._outputs.with_suffix(".log"),
            self._settings.timeout_s,
        )
        reply = self._ask(
            "set_up",
            function=contender.function,
            arguments=dict(contender.arguments),
            outputs=str(self._outputs),
        )
        _check_affinity(reply["affinity"])
        with np.load(self._outputs) as saved:
            self.results = [saved[name] for name in saved.files]
        self._note(**{key: reply[key] for key in ("set_up_s", "set_up_peak_mb", "facts")})

    def _warm_up(self) -> None:
        reply = self._ask("warm_up", seconds=self._settings.warm_up_s)
        _check_affinity(reply["affinity"])
        run_s = max(reply["run_ns"], 1) / 1e9
        settings = self._settings
        more = min(_MOST_TIMES * settings.runs, int(settings.min_block_s / run_s))
        affordable = int(settings.max_block_s / run_s)
        self._runs = max(1, min(max(settings.runs, more), affordable))
        self._note(affinity=tuple(reply["affinity"]))

    def _block(self) -> None:
        assert self._process
        load = OtherLoad(self._process.pid, self.outcome.affinity)
        start = time.perf_counter()
        times = tuple(self._ask("block", runs=self._runs)["ns"])
        self._used_s += time.perf_counter() - start
        self._others_s += load.seconds()
        self._note(
            blocks_ns=(*self.outcome.blocks_ns, times), disturbance=self._others_s / self._used_s
        )

    def _ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        assert self._process
        return self._process.ask({"do": request, **arguments})

    def _note(self, **changes: Any) -> None:
        self.outcome = replace(self.outcome, **changes)

    def _attempt(self, stage: str, action: Callable[[], None]) -> None:
        if self.outcome.status != "ok":
            return
        try:
            action()
            return
        except MissingError as error:
            self._note(status="missing", note=str(error))
        except ContenderError as error:
            self._note(status="failed", note=f"{stage}: {error}")
        self.end()


def _compare(entrants: Sequence[_Entrant], tolerance: float) -> None:
    """Compare everybody's outputs with those that most agree with."""
    able = [entrant for entrant in entrants if entrant.outcome.status == "ok"]
    if not able:
        return
    reference = able[reference_of([e.results for e in able], tolerance)]
    want, name = reference.results, reference.name
    for entrant in able:
        entrant.compare(want, name)


def _check_affinity(cpus: Sequence[int]) -> None:
    ours = sorted(os.sched_getaffinity(0))
    if list(cpus) != ours:
        raise ContenderError(f"its threads may use the CPUs {list(cpus)}, everybody else's {ours}")


@contextmanager
def _step_display(progress: Progress | None, steps: int) -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done now, on a task of its own."""
    if progress is None:
        yield lambda text: None
        return
    task = progress.add_task("", total=steps)
    try:
        yield lambda text: progress.update(task, description=text, advance=1)
    finally:
        progress.remove_task(task)
