"""Operators that are cut alike: data stay with who wrote them, and idle vEUs join for that.

Policies give an operator no more vEUs than end it sooner, 28 tiles to 14 of 16. The next operator
may be cut for all 16, and almost no vEU then has what it reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.agree import Ranges, Slot, agree
from tvm_rammer.schedule.placement import Placed, Placement
from tvm_rammer.schedule.timeline import Span, Timeline
from tvm_rammer.schedule.trials import Trials

#: Plans of more rTasks stay as they are: looking for more would take longer than planning does.
_MOST_TASKS = 10_000
#: More rTasks must make a plan this much shorter.
_WORTH = 0.995


def cut_alike(placement: Placement, trials: Trials) -> Placement:
    """The placement, or a shorter one whose operators are cut so that vEUs read what they wrote.

    Each operator may have its vEUs, and all that are idle as long as it runs
    (:func:`~.agree.agree`). A simulation of all of it decides.

    Parameters
    ----------
    placement : Placement
    trials : Trials
        Of its graph.
    """
    tasks = sum(map(len, placement.veus))
    if not trials.costs.moves_data(trials.num_veus) or tasks > _MOST_TASKS:
        return placement
    program, timeline = trials.plain(placement)
    if trials.least >= _WORTH * timeline.makespan:
        return placement
    slots = _slots(program, timeline)
    cuts = agree(program, slots, trials.costs)
    if not cuts:
        return placement
    found = _with_ranges(placement, timeline, slots, cuts)
    if _waves_ascend(placement) and not _waves_ascend(found):
        return placement
    return found if trials.plain_seconds(found) < _WORTH * timeline.makespan else placement


def _slots(program: RProgram, timeline: Timeline) -> dict[int, Slot]:
    """Where operators may run, in order of time; not those that have several ranges on a vEU."""
    by_operator: dict[int, list[Span]] = defaultdict(list)
    by_veu: list[list[Span]] = [[] for _ in program.veus]
    for span in sorted(timeline.spans, key=lambda span: (span.veu, span.position)):
        by_operator[span.operator].append(span)
        by_veu[span.veu].append(span)
    starts = [[span.start for span in mine] for mine in by_veu]
    found = {}
    for operator, mine in by_operator.items():
        tasks = {span.veu: program.veus[span.veu][span.position] for span in mine}
        start, stop = min(span.start for span in mine), max(span.stop for span in mine)
        if len(tasks) < len(mine) or start == stop:
            continue
        veus = set(tasks)
        for veu, theirs in enumerate(by_veu if len(tasks) > 1 else ()):
            after = bisect_left(starts[veu], stop)
            if not after or theirs[after - 1].stop <= start:
                veus.add(veu)
        ranges = {veu: (task.start, task.stop) for veu, task in tasks.items()}
        late = {span.veu: span.start - start for span in mine}
        found[operator] = Slot(start, ranges, late, tuple(sorted(veus)))
    return dict(sorted(found.items(), key=lambda item: (item[1].start, item[0])))


def _with_ranges(
    placement: Placement, timeline: Timeline, slots: Mapping[int, Slot], cuts: Mapping[int, Ranges]
) -> Placement:
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
            cut = cuts.get(placed.operator)
            if cut is None:
                timed.append((start, 0, position, placed))
            elif veu in cut:
                timed.append((start, 0, position, _over(placed, cut[veu])))
        mine = {placed.operator for placed in kept}
        for operator, cut in cuts.items():
            if veu in cut and operator not in mine:
                begin = slots[operator].start
                timed.append((begin, 1, operator, _over(known[operator], cut[veu])))
        veus.append(tuple(entry[-1] for entry in sorted(timed, key=lambda entry: entry[:3])))
    return replace(placement, veus=tuple(veus))


def _waves_ascend(placement: Placement) -> bool:
    """As they must where each wave is a launch."""
    return all(a.wave <= b.wave for veu in placement.veus for a, b in pairwise(veu))


def _over(placed: Placed, tiles: tuple[int, int]) -> Placed:
    return replace(placed, start=tiles[0], stop=tiles[1])
