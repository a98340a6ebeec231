"""Where a plan that runs one operator after the other loses time to its roofline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.plan_roofline import Demand
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.rprogram import RProgram
from tvm_rammer.schedule.timeline import Timeline

#: Operators that are named.
_NAMED = 10


@dataclass(frozen=True)
class SlowOperator:
    """All operators of a distinct rKernel, as they ran in the plan.

    Attributes
    ----------
    operator : str
        The first one.
    count : int
    rule : str
        What made the rKernel.
    milliseconds : float
        From the end of what ran before to their own ends.
    waiting : float
        Milliseconds of those in which vEUs did not compute: the mean of all vEUs.
    roofline : float
        The least milliseconds.
    limit : str
        What sets them: ``"compute"``, or the memory that most of the reading takes.
    """

    operator: str
    count: int
    rule: str
    milliseconds: float
    waiting: float
    roofline: float
    limit: str


def slow_operators(
    program: RProgram,
    timelines: Sequence[Timeline],
    needed: Sequence[Demand],
    ceilings: Ceilings,
) -> tuple[SlowOperator, ...]:
    """The operators that lose most to their roofline, the worst first.

    Parameters
    ----------
    program : RProgram
        A plan that runs one operator after the other.
    timelines : sequence of Timeline
        Measured runs of it; of each operator the median counts.
    needed : sequence of Demand
        What each operator takes.
    ceilings : Ceilings
        Of all cores.
    """
    runs = [_lengths(timeline, len(program.operators)) for timeline in timelines]
    users = defaultdict(list)
    for index, operator in enumerate(program.operators):
        users[operator.kernel].append(index)
    found = []
    for kernel, operators in users.items():
        length, waiting = (
            1e3 * sum(median(run[index][part] for run in runs) for index in operators)
            for part in (0, 1)
        )
        least = 1e3 * sum(needed[index].seconds(ceilings) for index in operators)
        first = operators[0]
        name, rule = program.operators[first].name, program.kernels[kernel].origin
        limit = needed[first].limit(ceilings)
        found.append(SlowOperator(name, len(operators), rule, length, waiting, least, limit))
    found.sort(key=lambda slow: slow.roofline - slow.milliseconds)
    return tuple(found[:_NAMED])


def _lengths(timeline: Timeline, operators: int) -> list[tuple[float, float]]:
    """For each operator, by its number: seconds that it took, and that the vEUs waited in them."""
    ends, busy = [0.0] * operators, [0.0] * operators
    for span in timeline.spans:
        ends[span.operator] = max(ends[span.operator], span.stop)
        busy[span.operator] += span.duration
    found = [(0.0, 0.0)] * operators
    before = min((span.start for span in timeline.spans), default=0.0)
    for index in sorted(range(operators), key=ends.__getitem__):
        length = max(0.0, ends[index] - before)
        found[index] = length, max(0.0, length - busy[index] / timeline.num_veus)
        before = max(before, ends[index])
    return found
