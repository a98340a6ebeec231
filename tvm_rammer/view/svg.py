"""A timeline as a small static SVG, for documents and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.timeline import Timeline
from tvm_rammer.units import MICRO, duration, ticks
from tvm_rammer.view.families import FAMILIES, Family
from tvm_rammer.view.panel import Panel, make_panels

_MARGIN = 12.0
_LABELS = 46.0
_LANE = 18.0
_PITCH = 21.0
_HEADING = 22.0
#: Room for the makespan behind the last rTask.
_TAIL = 64.0

#: One style for light and dark pages; the classes are ours alone, since an inline SVG shares its
#: style sheet with the page around it.
_STYLE = """\
.rammer-ink{fill:#1f2328;font:12px system-ui,sans-serif}.rammer-soft{fill:#59636e;font:11px \
system-ui,sans-serif}.rammer-lane{fill:#8c959f;fill-opacity:.14}.rammer-line{stroke:#8c959f;\
stroke-opacity:.5}.rammer-end{stroke:#1f2328}@media(prefers-color-scheme:dark){.rammer-ink{fill:\
#f0f6fc}.rammer-soft{fill:#9198a1}.rammer-end{stroke:#f0f6fc}}"""


def timeline_svg(
    program: RProgram | Sequence[RProgram],
    timelines: Sequence[Timeline],
    title: str = "",
    width: int = 860,
) -> str:
    """Timelines as one SVG image, stacked on a common time axis.

    Parameters
    ----------
    program : RProgram or sequence of RProgram
        The program of all timelines, or one for each.
    timelines : sequence of Timeline
    title : str
        Read out by screen readers, and shown above unless empty.
    width : int
        Pixels, also those below which an rTask is merged with its neighbours.

    Returns
    -------
    str
        An ``<svg>`` element that needs nothing else. A plan of a few hundred rTasks takes some ten
        kilobytes.
    """
    panels = make_panels(program, timelines)
    end = max(panel.timeline.makespan for panel in panels)
    scale = (width - 2 * _MARGIN - _LABELS - _TAIL) / end if end else 0.0
    parts: list[str] = []
    y = _MARGIN
    if title:
        parts.append(_text(_MARGIN, y + 14, title, "ink", "font-size:15px;font-weight:600"))
        y += 26
    for panel in panels:
        parts += _draw_panel(panel, y, scale)
        y += _HEADING + _PITCH * panel.program.num_veus + 8
    parts += _draw_axis(end, y, scale, width)
    parts += _draw_legend(panels, y + 36)
    height = y + 48
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" '
        f'width="{width}" height="{height:g}" role="img">'
        f"<title>{_escaped(title or panels[-1].program.name)}</title><style>{_STYLE}</style>"
        + "".join(parts)
        + "</svg>"
    )


def _draw_panel(panel: Panel, y: float, scale: float) -> Iterator[str]:
    left, makespan = _MARGIN + _LABELS, panel.timeline.makespan
    busy = f"{panel.timeline.utilisation:.0%} busy"
    yield _text(_MARGIN, y + 13, f"{panel.label}, {busy}", "ink")
    y += _HEADING
    stop = left + makespan * scale
    bottom = y + _PITCH * panel.program.num_veus
    for veu in range(panel.program.num_veus):
        top = y + veu * _PITCH
        yield _text(_MARGIN, top + 13, f"vEU {veu}", "soft")
        yield (
            f'<rect class="rammer-lane" x="{left:g}" y="{top:g}" '
            f'width="{_short(makespan * scale)}" height="{_LANE:g}"/>'
        )
    for family, path in _paths(panel, y, scale).items():
        yield f'<path fill="{family.colour}" d="{"".join(path)}"/>'
    yield _line(stop, y - 4, stop, bottom, "end")
    yield _text(stop + 5, y + 9, duration(makespan, MICRO), "ink", "font-weight:600")


def _paths(panel: Panel, y: float, scale: float) -> dict[Family, list[str]]:
    """The bars of each family; what ends within a pixel that is already painted is left out."""
    paths: dict[Family, list[str]] = {}
    for veu, spans in enumerate(panel.veus):
        top, painted = y + veu * _PITCH, -1.0
        for span in spans:
            start, stop = span.start * scale, span.stop * scale
            if stop <= painted:
                continue
            start = max(start, painted)
            # Long bars leave a gap, so that neighbours of one family can be told apart.
            painted = max(start + 0.5, stop)
            length = painted - start - (0.8 if painted - start > 3 else 0.0)
            x = _MARGIN + _LABELS + start
            bar = f"M{_short(x)} {_short(top)}h{_short(length)}v{_LANE:g}h-{_short(length)}z"
            paths.setdefault(panel.families[span.operator], []).append(bar)
    return paths


def _draw_axis(end: float, y: float, scale: float, width: int) -> Iterator[str]:
    left = _MARGIN + _LABELS
    yield _line(left, y, width - _MARGIN, y, "line")
    for tick in ticks(end, width // 120):
        x = left + tick * scale
        yield _line(x, y, x, y + 4, "line")
        yield _text(x, y + 16, duration(tick, MICRO) if tick else "0", "soft", "text-anchor:middle")


def _draw_legend(panels: Sequence[Panel], y: float) -> Iterator[str]:
    ran = {panel.families[span.operator] for panel in panels for span in panel.timeline.spans}
    x = _MARGIN + _LABELS
    for family in FAMILIES:
        if family in ran:
            yield (
                f'<rect fill="{family.colour}" x="{x:g}" y="{y - 9:g}" width="10" height="10" '
                'rx="2"/>'
            )
            yield _text(x + 15, y, family.name, "soft")
            x += 32 + 6.2 * len(family.name)


def _text(x: float, y: float, content: str, style: str, css: str = "") -> str:
    extra = f' style="{css}"' if css else ""
    return (
        f'<text class="rammer-{style}" x="{_short(x)}" y="{_short(y)}"{extra}>'
        f"{_escaped(content)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return (
        f'<line class="rammer-{style}" x1="{_short(x1)}" y1="{_short(y1)}" '
        f'x2="{_short(x2)}" y2="{_short(y2)}"/>'
    )


def _escaped(text: str) -> str:
    """Safe in XML and in any encoding; control characters, which XML forbids, become spaces."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return escape(printable).encode("ascii", "xmlcharrefreplace").decode()


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
