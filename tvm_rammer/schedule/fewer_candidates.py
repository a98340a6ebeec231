"""A choice of rKernels that can only help: every policy also plans without the finer ones.

Policies choose by estimates that know nothing of transfers and of what runs beside; more choice
misled them (a plan took up to twice as long). A simulation of the whole plan tells.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.schedule.interplay import worth_weighing
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.trials import Trials

#: Fewer candidates must make a plan this much shorter to be preferred to all of them.
_WORTH = 0.995


def place_with_any(
    place: Callable[[OperatorGraph], Placement], first: Placement, trials: Trials
) -> Placement:
    """The shortest of the placements with the first candidate of each operator, the first two, ...

    Parameters
    ----------
    place : callable
        Makes a placement of a graph with fewer candidates.
    first : Placement
        With all candidates.
    trials : Trials
        Of the graph, where the candidates of each operator have the most efficient first, and finer
        ones behind.
    """
    best = last = first
    for most, fewer in _narrowed(trials.graph, trials.num_veus):
        if trials.least >= _WORTH * trials.seconds(best):
            break
        # A candidate that was weighed and not taken is not missed.
        if _finest(last) < most:
            continue
        last = place(fewer)
        if trials.seconds(last) < _WORTH * trials.seconds(best):
            best = last
    return best


def _finest(placement: Placement) -> int:
    """The highest number of a candidate that runs."""
    return max((placed.candidate for veu in placement.veus for placed in veu), default=0)


def _narrowed(graph: OperatorGraph, num_veus: int) -> list[tuple[int, OperatorGraph]]:
    """The graph with at most so many candidates, as far as that is less to choose from."""
    most = max((len(operator.candidates) for operator in graph.operators), default=1)
    found, known = [], _weighed(graph, num_veus)
    for count in range(most - 1, 0, -1):
        fewer = graph.with_candidates(op.candidates[:count] for op in graph.operators)
        weighed = _weighed(fewer, num_veus)
        if weighed != known:
            found.append((count, fewer))
        known = weighed
    return found


def _weighed(graph: OperatorGraph, num_veus: int) -> list[int]:
    """How many candidates of each operator policies look at."""
    return [len(worth_weighing(op.candidates, num_veus)) for op in graph.operators]
