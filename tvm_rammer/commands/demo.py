"""``tvm-rammer demo``: what co-scheduling does, on two networks, with nothing to prepare."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.commands.files import require_writable, write_file

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from tvm_rammer.commands.demo_race import Race
    from tvm_rammer.rprogram import RProgram
    from tvm_rammer.schedule import Timeline
    from tvm_rammer.testing.timing_results import Outcome

_EXAMPLES = """\b
Examples:
  tvm-rammer demo
  tvm-rammer demo -o /tmp/schedule.html
  tvm-rammer demo --json
"""


@click.command(
    "demo",
    cls=Command,
    short_help="Compile two networks, check them, compare the times.",
    epilog=_EXAMPLES,
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("rammer-demo.html"),
    show_default=True,
    help="The schedule, as one HTML page.",
)
def command(output: Path) -> Result:
    """Compile two networks in several ways, check the answers, compare the times.

    Builds an LSTM and a GoogLeNet with random weights, and takes neither file nor network nor C++
    compiler. It takes a minute or so.

    Every contender runs in a process of its own; they take turns. 'stock TVM' is TVM's default
    pipeline, which does not schedule for CPUs. 'per-op', 'sequential' and 'co-scheduled' run the
    same kernels of this project: launched operator by operator; as one program, one operator after
    the other on all cores; and as one program with independent operators side by side.
    """
    from tvm_rammer.commands.demo_race import demo_models, race
    from tvm_rammer.commands.native_work import progress

    started = time.perf_counter()
    require_writable(output)
    races = []
    with progress(bar=True) as display:
        models = demo_models()
        task = display.add_task("", total=len(models))
        for model in models:
            display.update(task, description=model.name)
            with tempfile.TemporaryDirectory(prefix="tvm-rammer-") as folder:
                races.append(race(model, Path(folder), display))
            display.advance(task)
    plans = _plans(races[0])
    write_file(output, _page(races[0], plans))
    seconds = time.perf_counter() - started
    agreed = all(found.agreed for found in races)
    return Result(
        {
            "models": [_document(found) for found in races],
            "timeline": str(output),
            "agreed": agreed,
            "seconds": seconds,
        },
        tuple(_text(races, plans, output, seconds)),
        exit_code=int(not agreed),
    )


def _plans(found: Race) -> list[tuple[RProgram, Timeline]]:
    """The sequential and the co-scheduled plan, simulated."""
    from tvm_rammer.commands.demo_race import CO_SCHEDULED, SEQUENTIAL
    from tvm_rammer.runtime.description import simulated

    return [
        plan
        for name in (SEQUENTIAL, CO_SCHEDULED)
        if name in found.plans
        for plan in simulated(found.plans[name])
    ]


def _page(found: Race, plans: Sequence[tuple[RProgram, Timeline]]) -> str:
    from tvm_rammer.view import timeline_html

    programs, timelines = [plan for plan, _ in plans], [timeline for _, timeline in plans]
    return timeline_html(programs, timelines, f"{found.model.name}, {found.model.description}")


def _document(found: Race) -> dict[str, Any]:
    return {
        "name": found.model.name,
        "description": found.model.description,
        "reference": found.reference,
        "steady": found.steady,
        "contenders": [_contender(found, outcome) for outcome in found.outcomes],
    }


def _contender(found: Race, outcome: Outcome) -> dict[str, Any]:
    ratio = found.ratio(outcome)
    timed = outcome.quartiles_ms() if outcome.blocks_ns else (None, None, None)
    return {
        "name": outcome.name,
        "status": outcome.status,
        "note": outcome.note,
        **dict(zip(("lower_quartile_ms", "median_ms", "upper_quartile_ms"), timed, strict=True)),
        "runs": sum(map(len, outcome.blocks_ns)),
        "time_over_sequential": asdict(ratio) if ratio else None,
        "relative_error": outcome.error if math.isfinite(outcome.error) else None,
        "set_up_seconds": outcome.set_up_s,
    }


def _text(
    races: Sequence[Race],
    plans: Sequence[tuple[RProgram, Timeline]],
    output: Path,
    seconds: float,
) -> list[RenderableType]:
    from rich.text import Text

    from tvm_rammer.commands.render import timeline

    parts: list[RenderableType] = []
    for found in races:
        title = Text.assemble(
            (f"  {found.model.name}", "bold"), (f"  {found.model.description}", "dim")
        )
        parts += ["", title, "", _table(found), *_notes(found)]
    parts += ["", Text(f"  The {races[0].model.name}'s plans, simulated", style="bold")]
    for program, times in plans:
        parts += ["", timeline(program, times)]
    where = Text.assemble("  The schedule to zoom into: ", (str(output.absolute()), "bold green"))
    return [*parts, "", where, Text(f"  {seconds:.0f} s in all", style="dim")]


def _table(found: Race) -> Table:
    from tvm_rammer.commands.render import columns

    table = columns("", "median", "ratio", "95 %", "runs", "error", "set-up", right=range(1, 7))
    for outcome in found.outcomes:
        style = "bold green" if outcome.name == "co-scheduled" else None
        table.add_row(outcome.name, *_cells(found, outcome), style=style)
    return table


def _cells(found: Race, outcome: Outcome) -> list[str | Text]:
    from rich.text import Text

    from tvm_rammer.units import duration

    error = "reference" if outcome.name == found.reference else f"{outcome.error:.1g}"
    if outcome.status != "ok":
        return [Text(outcome.status, style="bold red"), "", "", "", error, ""]
    ratio = found.ratio(outcome)
    return [
        duration(outcome.quartiles_ms()[1] / 1e3),
        f"{ratio.value:.2f}x" if ratio else "-",
        Text(f"{ratio.low:.2f} to {ratio.high:.2f}" if ratio else "", style="dim"),
        Text(str(sum(map(len, outcome.blocks_ns))), style="dim"),
        error,
        Text(f"{outcome.set_up_s:.1f} s", style="dim"),
    ]


def _notes(found: Race) -> list[Text]:
    """What the columns are; why a contender has no time, or the times are not to be trusted."""
    from rich.text import Text

    legend = (
        "ratio: time over sequential's in the same round; "
        f"error: relative to {found.reference}'s outputs"
    )
    notes = [Text(f"  {legend}", style="dim")]
    notes += [
        Text(f"  {outcome.name} {outcome.status}: {outcome.note}", style="red")
        for outcome in found.outcomes
        if outcome.status != "ok"
    ]
    if not found.steady:
        advice = "the times vary a lot: other programs use the cores; run the demo again without"
        notes.append(Text(f"  {advice}", style="yellow"))
    return notes
