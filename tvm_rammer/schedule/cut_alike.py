"""Operators that are cut alike: idle vEUs join those that compute, so that data stay at hand.

Policies give an operator no more vEUs than end it sooner, 28 tiles to 14 of 16. The next operator
may be cut for all 16, and almost no vEU then has what it reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RProgram, RTask
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.placement import Placed, Placement, split
from tvm_rammer.schedule.simulate import simulate
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.timeline import Span, Timeline
from tvm_rammer.schedule.transfers import Transfers

#: Plans of more rTasks stay as they are: looking for more would take longer than planning does.
_MOST_TASKS = 10_000
#: More rTasks must make a plan this much shorter.
_WORTH = 0.995

#: The range of tiles that each vEU runs.
_Ranges = Mapping[int, tuple[int, int]]


def cut_alike(graph: OperatorGraph, placement: Placement, costs: CostModel) -> Placement:
    """The placement, or a shorter one in which idle vEUs run some ranges of the operators' tiles.

    Operator after operator, in the order of a simulation, the tiles are spread evenly over its vEUs
    and all that are idle as long as it runs, if it then ends sooner, given what each vEU has
    written and fetched by then (owner computes). A simulation of all of it decides.

    Parameters
    ----------
    graph : OperatorGraph
    placement : Placement
    costs : CostModel
    """
    tasks = sum(map(len, placement.veus))
    if not costs.moves_data(len(placement.veus)) or tasks > _MOST_TASKS:
        return placement
    program = synchronise(graph, placement)
    timeline = simulate(program, costs)
    spread = _spread(program, timeline, costs)
    if not spread:
        return placement
    found = _with_ranges(placement, timeline, spread)
    if _waves_ascend(placement) and not _waves_ascend(found):
        return placement
    seconds = simulate(synchronise(graph, found), costs).makespan
    return found if seconds < _WORTH * timeline.makespan else placement


@dataclass(frozen=True)
class _Run:
    """An operator in time: the range and the start of each of its vEUs, and its end."""

    operator: int
    ranges: _Ranges
    starts: Mapping[int, float]
    stop: float

    @property
    def start(self) -> float:
        return min(self.starts.values())


def _runs(program: RProgram, timeline: Timeline) -> list[_Run]:
    """The operators in order of time; those that have several ranges on a vEU are left out."""
    spans = defaultdict(list)
    for span in timeline.spans:
        spans[span.operator].append(span)
    found = []
    for operator, mine in spans.items():
        tasks = {span.veu: program.veus[span.veu][span.position] for span in mine}
        if len(tasks) == len(mine):
            ranges = {veu: (task.start, task.stop) for veu, task in tasks.items()}
            starts = {span.veu: span.start for span in mine}
            found.append(_Run(operator, ranges, starts, max(span.stop for span in mine)))
    return sorted(found, key=lambda run: (run.start, run.operator))


def _spread(program: RProgram, timeline: Timeline, costs: CostModel) -> dict[int, _Run]:
    """The operators that have other ranges from now on."""
    transfers = Transfers(program, costs)
    spans: list[list[Span]] = [[] for _ in program.veus]
    for span in sorted(timeline.spans, key=lambda span: (span.veu, span.position)):
        spans[span.veu].append(span)
    starts = [[span.start for span in mine] for mine in spans]
    found: dict[int, _Run] = {}
    for run in _runs(program, timeline):
        best = run
        if len(run.ranges) > 1 and run.stop > run.start:
            idle = []
            for veu, mine in enumerate(spans):
                after = bisect_left(starts[veu], run.stop)
                if not after or mine[after - 1].stop <= run.start:
                    idle.append(veu)
            wider = _over(run, sorted({*run.ranges, *idle}), program)
            if _is_lighter(wider, run) and (
                _end(wider, program, transfers) < _end(run, program, transfers)
            ):
                best = found[run.operator] = wider
        nbytes = sum(program.buffers[b].nbytes for b in program.operators[run.operator].arguments)
        tiles = program.kernel_of(run.operator).num_tiles or 1
        for veu, (start, stop) in best.ranges.items():
            share = (stop - start) / tiles
            transfers.seconds(veu, RTask(run.operator, start, stop), nbytes * share)
    return found


def _is_lighter(run: _Run, before: _Run) -> bool:
    """Whether it has other ranges, and no vEU has more to do than the busiest one had."""
    counts, known = (
        {veu: stop - start for veu, (start, stop) in each.ranges.items()} for each in (run, before)
    )
    return run.ranges != before.ranges and all(
        count <= known.get(veu, max(known.values())) for veu, count in counts.items()
    )


def _over(run: _Run, veus: list[int], program: RProgram) -> _Run:
    """The operator spread evenly over some vEUs; where tiles are few, each where its place is."""
    tiles = program.kernel_of(run.operator).num_tiles
    if tiles >= len(veus):
        places = veus
    else:
        places = [veus[(2 * tile + 1) * len(veus) // (2 * tiles)] for tile in range(tiles)]
    ranges = dict(zip(places, split(tiles, len(places)), strict=True))
    return replace(run, ranges=ranges, starts={v: run.starts.get(v, run.start) for v in places})


def _end(run: _Run, program: RProgram, transfers: Transfers) -> float:
    """When the operator has run, if what it reads lies where ``transfers`` says."""
    time = program.kernel_of(run.operator).tile_time
    return max(
        run.starts[veu]
        + (stop - start) * time
        + transfers.waiting(veu, RTask(run.operator, start, stop))
        for veu, (start, stop) in run.ranges.items()
    )


def _with_ranges(placement: Placement, timeline: Timeline, spread: Mapping[int, _Run]) -> Placement:
    """The placement with other ranges of some operators.

    A vEU that joins runs its range where it was idle: what it does before has ended when the
    operator starts, what it does after starts when the operator has ended, so that nothing waits in
    a circle.
    """
    veus = []
    starts: list[dict[int, float]] = [{} for _ in placement.veus]
    for span in timeline.spans:
        starts[span.veu][span.position] = span.start
    known = {placed.operator: placed for veu in placement.veus for placed in veu}
    for veu, before in enumerate(placement.veus):
        kept = [placed for placed in before if placed.start < placed.stop]
        timed = []
        for position, placed in enumerate(kept):
            start = starts[veu][position]
            run = spread.get(placed.operator)
            if run is None:
                timed.append((start, 0, position, placed))
            elif veu in run.ranges:
                timed.append((start, 0, position, _cut(placed, run, veu)))
        mine = {placed.operator for placed in kept}
        for operator, run in spread.items():
            if veu in run.ranges and operator not in mine:
                timed.append((run.start, 1, operator, _cut(known[operator], run, veu)))
        veus.append(tuple(entry[-1] for entry in sorted(timed, key=lambda entry: entry[:3])))
    return replace(placement, veus=tuple(veus))


def _waves_ascend(placement: Placement) -> bool:
    """As they must where each wave is a launch."""
    return all(a.wave <= b.wave for veu in placement.veus for a, b in pairwise(veu))


def _cut(placed: Placed, run: _Run, veu: int) -> Placed:
    start, stop = run.ranges[veu]
    return replace(placed, start=start, stop=stop)
