"""A timeline as text: one row for each vEU, time from left to right."""

from __future__ import annotations

from shutil import get_terminal_size

from rich.text import Text

from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.timeline import Timeline
from tvm_rammer.units import duration, ticks
from tvm_rammer.view.families import FAMILIES, Family
from tvm_rammer.view.panel import Panel, make_panels

_IDLE = "."
#: Below this many columns a row tells nothing.
_FEWEST_COLUMNS = 16


def timeline_text(program: RProgram, timeline: Timeline, width: int | None = None) -> Text:
    """A timeline for a terminal.

    Parameters
    ----------
    program : RProgram
    timeline : Timeline
        Of that program.
    width : int, optional
        Columns of the whole text; as wide as the terminal by default.

    Returns
    -------
    rich.text.Text
        ``rich.print`` shows it in colour, ``.plain`` is the text, all ASCII. Each glyph stands for
        the family that computed longest in its share of the time, ``.`` for a vEU that was mostly
        idle.
    """
    (panel,) = make_panels(program, [timeline])
    labels = [f"vEU {veu}" for veu in range(program.num_veus)]
    margin = max(map(len, labels), default=0)
    width = get_terminal_size().columns if width is None else width
    columns = max(_FEWEST_COLUMNS, width - margin - len("    100%"))
    text = Text(_headline(panel) + "\n", no_wrap=True, overflow="crop")
    text.append(" " * (margin + 2) + _axis(timeline.makespan, columns) + "\n", style="dim")
    for veu, (label, spans) in enumerate(zip(labels, panel.veus, strict=True)):
        busy = sum(span.duration for span in spans)
        share = busy / timeline.makespan if timeline.makespan else 0.0
        text.append(f"{label:<{margin}}  ")
        text.append_text(_row(_columns(panel, veu, columns)))
        text.append(f"  {share:>4.0%}\n", style="dim")
    return text.append_text(_legend(panel))


def _headline(panel: Panel) -> str:
    timeline = panel.timeline
    return (
        f"{panel.program.name}, {panel.label}: {duration(timeline.makespan)}, "
        f"vEUs busy {timeline.utilisation:.0%} of the time"
    )


def _axis(makespan: float, columns: int) -> str:
    line = ""
    for tick in ticks(makespan, columns // 16):
        column = round(tick / makespan * columns) if makespan else 0
        mark = f"|{duration(tick)}" if tick else "|0"
        if column + len(mark) <= columns:
            line = line.ljust(column) + mark
    return line


def _columns(panel: Panel, veu: int, columns: int) -> list[Family | None]:
    """The family that each column of a row shows; None where the vEU was mostly idle."""
    shares: list[dict[Family, float]] = [{} for _ in range(columns)]
    scale = columns / panel.timeline.makespan if panel.timeline.makespan else 0.0
    for span in panel.veus[veu]:
        family, start, stop = panel.families[span.operator], span.start * scale, span.stop * scale
        for column in range(int(start), min(columns, int(stop) + 1)):
            inside = min(stop, column + 1) - max(start, column)
            shares[column][family] = shares[column].get(family, 0.0) + inside
    return [_most(share) for share in shares]


def _most(share: dict[Family, float]) -> Family | None:
    if sum(share.values()) < 0.5:
        return None
    return max(share, key=lambda family: share[family])


def _row(families: list[Family | None]) -> Text:
    row = Text()
    for family in families:
        if family is None:
            row.append(_IDLE, style="dim")
        else:
            row.append(family.glyph, style=family.terminal)
    return row


def _legend(panel: Panel) -> Text:
    ran = {panel.families[span.operator] for span in panel.timeline.spans}
    legend = Text()
    for family in FAMILIES:
        if family in ran:
            legend.append(family.glyph, style=family.terminal)
            legend.append(f" {family.name}   ")
    legend.append(_IDLE, style="dim")
    return legend.append(" idle")
