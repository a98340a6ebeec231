"""Timelines as one self-contained HTML page that zooms, explains and compares them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.critical_path import critical_chain
from tvm_rammer.schedule.simulate import bounds
from tvm_rammer.schedule.timeline import Timeline
from tvm_rammer.units import MICRO, counted, duration, size
from tvm_rammer.view.families import FAMILIES
from tvm_rammer.view.panel import Panel, make_panels

#: The parts of the page's script, in the order in which they need each other.
_SCRIPTS = ("model.js", "paint.js", "overview.js", "tooltip.js", "interact.js")

#: Pixels of a frame: what surrounds the timelines, each timeline, each vEU, and at most.
_FRAME_HEIGHT, _TIMELINE_HEIGHT, _VEU_HEIGHT, _FRAME_LIMIT = 350, 80, 40, 900


def timeline_html(
    program: RProgram | Sequence[RProgram], timelines: Sequence[Timeline], title: str
) -> str:
    """Timelines as an HTML page, stacked on a common time axis.

    Parameters
    ----------
    program : RProgram or sequence of RProgram
        The program of all timelines, or one for each.
    timelines : sequence of Timeline
        Those of one region, by the program's name, are compared with the first of them.
    title : str

    Returns
    -------
    str
        A page in pure ASCII. It loads nothing: style, script and data are inside.
    """
    panels = make_panels(program, timelines)
    contents = {
        "title": _escaped(title),
        "style": _resource("timeline.css"),
        "summary": "\n".join(_summary(panels)),
        "data": _embedded(_data(panels)),
        "script": "\n".join(map(_resource, _SCRIPTS)),
    }
    # In one pass: what a name contains is never taken for a place to fill in.
    return re.sub(r"\{\{(\w+)\}\}", lambda m: contents[m[1]], _resource("timeline.html"))


def timeline_frame(
    program: RProgram | Sequence[RProgram], timelines: Sequence[Timeline], title: str
) -> str:
    """The page of :func:`timeline_html` as a frame inside another page, such as a notebook."""
    page = escape(timeline_html(program, timelines, title))
    height = _FRAME_HEIGHT + sum(_TIMELINE_HEIGHT + _VEU_HEIGHT * t.num_veus for t in timelines)
    style = f"width:100%;height:{min(height, _FRAME_LIMIT)}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def _resource(name: str) -> str:
    return (files("tvm_rammer.view") / "page" / name).read_text(encoding="utf-8")


def _escaped(text: str) -> str:
    return escape(text).encode("ascii", "xmlcharrefreplace").decode()


def _embedded(data: dict[str, Any]) -> str:
    """JSON that may stand inside a script element: no ``<``, so no end tag and no comment."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _summary(panels: Sequence[Panel]) -> list[str]:
    first: dict[str, Panel] = {}
    return [_card(panel, first.setdefault(panel.program.name, panel)) for panel in panels]


def _card(panel: Panel, first: Panel) -> str:
    """The numbers of one timeline."""
    program, timeline = panel.program, panel.timeline
    waits = sum(len(task.waits) for _, _, task in program.tasks())
    facts = [
        counted(program.num_veus, "vEU"),
        counted(len(program.operators), "operator"),
        counted(program.num_tasks, "rTask"),
        counted(program.num_waves, "wave"),
        counted(waits, "wait"),
        f"arena {size(program.arena_bytes)}",
    ]
    numbers = [
        (duration(timeline.makespan, MICRO), _against(panel, first) or "makespan"),
        (f"{timeline.utilisation:.0%}", "vEUs busy"),
        (f"{_computing_share(panel):.0%}", "critical path computing"),
        (duration(bounds(program).makespan, MICRO), "lower bound"),
    ]
    cells = "".join(
        f"<div><b>{_escaped(value)}</b><span>{_escaped(label)}</span></div>"
        for value, label in numbers
    )
    return (
        f'<section class="card"><h2>{_escaped(panel.label)}</h2><div class="numbers">{cells}</div>'
        f"<p>{_escaped(', '.join(facts))}</p></section>"
    )


def _against(panel: Panel, first: Panel) -> str:
    """How the makespan compares with that of the first timeline."""
    before, now = first.timeline.makespan, panel.timeline.makespan
    if panel is first or not before or not now:
        return ""
    shorter = now <= before
    ratio = before / now if shorter else now / before
    if f"{ratio:.2f}" == "1.00":
        return "as long as the first"
    return f"{ratio:.2f}x {'shorter' if shorter else 'longer'} than the first"


def _computing_share(panel: Panel) -> float:
    chain = set(critical_chain(panel.program, panel.timeline))
    spans = (s for s in panel.timeline.spans if (s.veu, s.position) in chain)
    makespan = panel.timeline.makespan
    return sum(span.duration for span in spans) / makespan if makespan else 0.0


def _data(panels: Sequence[Panel]) -> dict[str, Any]:
    """What the script draws; lists of numbers are flat, times are whole nanoseconds."""
    programs = list({id(panel.program): panel for panel in panels}.values())
    numbers = {id(panel.program): number for number, panel in enumerate(programs)}
    return {
        "families": [[family.name, family.colour] for family in FAMILIES],
        "programs": [_program(panel) for panel in programs],
        "panels": [_panel(panel, numbers[id(panel.program)]) for panel in panels],
    }


def _program(panel: Panel) -> dict[str, Any]:
    program = panel.program
    return {
        "kernels": [[k.name, k.origin, k.tiling, k.num_tiles] for k in program.kernels],
        "operators": [
            [op.name, op.kernel, FAMILIES.index(family)]
            for op, family in zip(program.operators, panel.families, strict=True)
        ],
        # Four numbers for each rTask.
        "tasks": [
            [n for task in tasks for n in (task.operator, task.start, task.stop, task.wave)]
            for tasks in program.veus
        ],
        # Three numbers for each wait.
        "waits": [
            [n for at, task in enumerate(tasks) for w in task.waits for n in (at, w.veu, w.count)]
            for tasks in program.veus
        ],
    }


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    return {
        "label": panel.label,
        "program": number,
        "makespan": _nanoseconds(panel.timeline.makespan),
        # Three numbers for each span, by time.
        "spans": [
            [n for s in spans for n in (s.position, _nanoseconds(s.start), _nanoseconds(s.stop))]
            for spans in panel.veus
        ],
        # Two numbers for each rTask on the critical path, in its order.
        "critical": [n for place in critical_chain(panel.program, panel.timeline) for n in place],
    }


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
