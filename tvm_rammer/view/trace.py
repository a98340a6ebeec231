"""A timeline in the trace event format, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.critical_path import critical_path
from tvm_rammer.schedule.timeline import Span, Timeline
from tvm_rammer.view.panel import Panel, make_panels

Event = dict[str, Any]

_PROCESS = 1


def chrome_trace(program: RProgram, timeline: Timeline) -> dict[str, Any]:
    """A timeline as an object that ``json.dump`` writes as a trace.

    Parameters
    ----------
    program : RProgram
    timeline : Timeline
        Of that program.

    Returns
    -------
    dict
        One thread for each vEU, one complete event for each rTask (microseconds), one flow for
        each wait.
    """
    (panel,) = make_panels(program, [timeline])
    return {
        "traceEvents": [*_names(panel), *_tasks(panel), *_flows(panel)],
        "displayTimeUnit": "ns",
        "otherData": {
            "program": program.name,
            "policy": program.policy,
            "source": timeline.source,
            "makespan_us": _microseconds(timeline.makespan),
            "utilisation": timeline.utilisation,
        },
    }


def _names(panel: Panel) -> Iterator[Event]:
    yield _event(
        "M", 0, name="process_name", args={"name": f"{panel.program.name} ({panel.label})"}
    )
    for veu in range(panel.program.num_veus):
        yield _event("M", veu, name="thread_name", args={"name": f"vEU {veu}"})
        yield _event("M", veu, name="thread_sort_index", args={"sort_index": veu})


def _tasks(panel: Panel) -> Iterator[Event]:
    critical = critical_path(panel.program, panel.timeline)
    for span in _in_order(panel):
        task, kernel = panel.task(span), panel.program.kernel_of(span.operator)
        start = _microseconds(span.start)
        yield _event(
            "X",
            span.veu,
            name=panel.program.operators[span.operator].name,
            cat=panel.families[span.operator].name,
            ts=start,
            # From the rounded ends, so that rTasks that touch still touch.
            dur=round(_microseconds(span.stop) - start, 3),
            args={
                "kernel": kernel.name,
                "origin": kernel.origin,
                "tiling": kernel.tiling,
                "tiles": f"[{task.start}, {task.stop}) of {kernel.num_tiles}",
                "position": span.position,
                "wave": task.wave,
                "critical": (span.veu, span.position) in critical,
            },
        )


def _flows(panel: Panel) -> Iterator[Event]:
    """An arrow from the last rTask that is waited for to the one that waits."""
    spans = {(span.veu, span.position): span for span in panel.timeline.spans}
    number = 0
    for span in _in_order(panel):
        for wait in panel.task(span).waits:
            awaited = spans.get((wait.veu, wait.count - 1))
            if awaited is None:
                continue
            # A flow belongs to the slice around its time: the very end is already outside.
            middle = _microseconds((awaited.start + awaited.stop) / 2)
            yield _event("s", wait.veu, name="wait", cat="wait", id=number, ts=middle)
            end = _microseconds(span.start)
            yield _event("f", span.veu, name="wait", cat="wait", id=number, ts=end, bp="e")
            number += 1


def _in_order(panel: Panel) -> list[Span]:
    return [span for spans in panel.veus for span in spans]


def _event(phase: str, veu: int, **fields: Any) -> Event:
    return {"ph": phase, "pid": _PROCESS, "tid": veu, **fields}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
