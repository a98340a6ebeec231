"""The critical path of a timeline: the chain of rTasks that its makespan hangs on."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.timeline import Span, Timeline

#: An rTask as (vEU, position on it).
Place = tuple[int, int]


def critical_path(program: RProgram, timeline: Timeline) -> set[Place]:
    """The rTasks on the critical path, each as ``(vEU, position)``.

    The path is walked back from the rTask that ends last: before each rTask comes the one that it
    had to wait for the longest, on its own vEU or on another.
    """
    return set(critical_chain(program, timeline))


def critical_chain(program: RProgram, timeline: Timeline) -> list[Place]:
    """The critical path in the order of its rTasks."""
    spans = {(span.veu, span.position): span for span in timeline.spans}
    current = max(timeline.spans, key=_ends, default=None)
    chain: dict[Place, None] = {}
    while current is not None and (current.veu, current.position) not in chain:
        chain[current.veu, current.position] = None
        before = [spans[p] for p in _predecessors(program, current) if p in spans]
        current = max(before, key=_ends, default=None)
    return list(reversed(chain))


def _ends(span: Span) -> tuple[float, int, int]:
    return span.stop, -span.veu, span.position


def _predecessors(program: RProgram, span: Span) -> Iterator[Place]:
    if span.position:
        yield span.veu, span.position - 1
    for wait in program.veus[span.veu][span.position].waits:
        if wait.count:
            yield wait.veu, wait.count - 1
