"""Explain a plan: what runs side by side, what limits it, and what a better one would need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.rows import predecessors_of
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.simulate import Bounds, bounds, simulate
from tvm_rammer.schedule.timeline import Timeline
from tvm_rammer.schedule.traffic import Traffic
from tvm_rammer.units import counted, duration, size

Limit = Literal["critical path", "work", "bandwidth", "launch", "waiting"]

#: A plan whose makespan is this close to a bound is limited by it.
_CLOSE = 0.9
#: Operators that are named.
_NAMED = 3


@dataclass(frozen=True)
class Explanation:
    """Why a plan takes as long as it does; times in seconds, simulated.

    Attributes
    ----------
    predicted : float
        Its makespan.
    critical_path, work, traffic : float
        Lower bounds, see :class:`~.simulate.Bounds`.
    limit : str
        Which bound it comes close to, or what else takes its time: the launch, or vEUs that wait.
    utilisation : float
        Share of the vEUs' time that they compute.
    operators, co_scheduled, inseparable : int
        All operators; those that at some time run beside another one; those beside which none could
        run, as all others come before or after.
    overlap : float
        Share of the makespan in which different operators run side by side.
    needs : str
        What a faster plan would take.
    """

    predicted: float
    critical_path: float
    work: float
    traffic: float
    limit: Limit
    utilisation: float
    operators: int
    co_scheduled: int
    inseparable: int
    overlap: float
    needs: str


def explain(program: RProgram, costs: CostModel) -> Explanation:
    """Explain a plan by simulating it."""
    timeline, least = simulate(program, costs), bounds(program, costs)
    limit = _limit(timeline, least, costs)
    together, seconds = _side_by_side(timeline)
    makespan = timeline.makespan
    return Explanation(
        makespan,
        least.critical_path,
        least.work,
        least.traffic,
        limit,
        timeline.utilisation,
        len(program.operators),
        len(together),
        _inseparable(program),
        seconds / makespan if makespan else 0.0,
        _needs(program, costs, limit, timeline),
    )


def _limit(timeline: Timeline, least: Bounds, costs: CostModel) -> Limit:
    found: dict[Limit, float] = {
        "bandwidth": least.traffic,
        "critical path": least.critical_path,
        "work": least.work,
    }
    largest = max(found, key=lambda name: found[name])
    if found[largest] >= _CLOSE * timeline.makespan:
        return largest
    if timeline.utilisation >= _CLOSE:
        return "work"
    return "launch" if costs.launch >= timeline.makespan / 2 else "waiting"


def _side_by_side(timeline: Timeline) -> tuple[set[int], float]:
    """Operators that at some time run beside another one, and for how long any do."""
    edges = [(span.start, 1, span.operator) for span in timeline.spans if span.duration > 0]
    edges += [(span.stop, 0, span.operator) for span in timeline.spans if span.duration > 0]
    running: Counter[int] = Counter()
    found: set[int] = set()
    seconds, since = 0.0, 0.0
    for time, begins, operator in sorted(edges):
        if len(running) > 1:
            seconds += time - since
        since = time
        running[operator] += 1 if begins else -1
        if not running[operator]:
            del running[operator]
        elif len(running) > 1:
            found.update(running)
    return found, seconds


def _inseparable(program: RProgram) -> int:
    """Operators that all others come before or after: alone at every level that they may have."""
    before = predecessors_of(program)
    count = len(before)
    earliest = [0] * count
    for number in range(count):
        earliest[number] = 1 + max((earliest[b] for b in before[number]), default=-1)
    latest = [max(earliest, default=0)] * count
    for number in reversed(range(count)):
        for producer in before[number]:
            latest[producer] = min(latest[producer], latest[number] - 1)
    # How many operators may have each level, by differences.
    change = [0] * (max(earliest, default=0) + 2)
    for first, last in zip(earliest, latest, strict=True):
        change[first] += 1
        change[last + 1] -= 1
    present, alone = 0, 0
    for difference in change[:-1]:
        present += difference
        alone += present == 1
    return alone


def _needs(program: RProgram, costs: CostModel, limit: Limit, timeline: Timeline) -> str:
    times = Traffic(program, costs).least
    if limit == "critical path":
        path = _longest_path(program, times)
        return (
            "more rTasks or faster kernels for the operators of the longest path, above all "
            f"{_slowest(program, times, path)}"
        )
    if limit == "work":
        everything = range(len(program.operators))
        return (
            f"faster kernels, above all for {_slowest(program, times, everything)}, or more vEUs: "
            "they compute all the time"
        )
    if limit == "bandwidth":
        nbytes = program.constant_bytes
        return f"fewer bytes: all vEUs wait for {size(nbytes)} of weights from memory"
    if limit == "launch":
        return f"more work per run: the launch alone takes {duration(costs.launch)}"
    waits = sum(len(task.waits) for _, _, task in program.tasks())
    idle = 1 - timeline.utilisation
    return (
        f"more independent work, or larger rTasks: vEUs wait for {idle:.0%} of the time, at "
        f"{counted(waits, 'wait')}"
    )


def _longest_path(program: RProgram, times: Sequence[float]) -> list[int]:
    before = predecessors_of(program)
    ends: list[float] = []
    for number, producers in enumerate(before):
        tiles = program.kernel_of(number).num_tiles or 1
        alone = -(-tiles // program.num_veus) / tiles * times[number]
        ends.append(alone + max((ends[b] for b in producers), default=0.0))
    path = [max(range(len(ends)), key=lambda n: ends[n])] if ends else []
    while path and before[path[-1]]:
        path.append(max(before[path[-1]], key=lambda n: (ends[n], -n)))
    return path


def _slowest(program: RProgram, times: Sequence[float], operators: Sequence[int]) -> str:
    """The kernels that most time goes to, with the first operator that each serves."""
    totals: dict[int, float] = {}
    first: dict[int, int] = {}
    for number in operators:
        kernel = program.operators[number].kernel
        totals[kernel] = totals.get(kernel, 0.0) + times[number]
        first[kernel] = min(number, first.get(kernel, number))
    slowest = sorted(totals, key=lambda kernel: -totals[kernel])[:_NAMED]
    return ", ".join(
        f"{program.operators[first[kernel]].name} ({duration(totals[kernel])})"
        for kernel in slowest
    )
