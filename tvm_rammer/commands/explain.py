"""``tvm-rammer explain``: why a model has its plan, and what a better one would need."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.commands.sources import build_options, open_described

if TYPE_CHECKING:
    from rich.table import Table

    from tvm_rammer.runtime.report import RegionReport
    from tvm_rammer.schedule import Decision, Loss

_EXAMPLES = """\b
Examples:
  tvm-rammer explain squeezenet.onnx
  tvm-rammer explain model.so
  tvm-rammer explain model.onnx --policy estf --json
"""


@click.command("explain", cls=Command, short_help="Say why a plan is as it is.", epilog=_EXAMPLES)
@click.argument("source", metavar="MODEL|LIBRARY|PLAN", type=click.Path(path_type=Path))
@build_options
def command(source: Path, **options: Any) -> Result:
    """Say why a model or a library has its plan; PLAN is what 'show --json' printed.

    Every plan that was considered with its predicted and its measured time, what was co-scheduled,
    what was left out and why, what limits the plan, what each cost takes of it, and what a better
    one would need.
    """
    _, description, report = open_described(source, **options)
    from tvm_rammer.commands.render import left_out
    from tvm_rammer.schedule import losses

    costs, programs = description.costs, description.programs
    lost = {name: losses(program, costs) for name, program in programs.items()}
    text: list[Any] = []
    for region in report.regions:
        text += [*_region(region), ""]
        if lost[region.name]:
            text += [_losses(lost[region.name]), ""]
    if not text:
        text = ["nothing was planned", ""]
    remaining = left_out(report)
    text.append("no operator was left out" if remaining is None else remaining)
    return Result(
        {
            "source": str(source),
            "vdevice": report.vdevice,
            "num_veus": report.num_veus,
            "regions": [
                {
                    "region": region.name,
                    "policy": region.policy,
                    "decision": None if region.decision is None else asdict(region.decision),
                    "explanation": asdict(region.explanation),
                    "losses": [asdict(loss) for loss in lost[region.name]],
                }
                for region in report.regions
            ],
            "left_out": [asdict(item) for item in report.left_out],
        },
        tuple(text),
    )


def _region(region: RegionReport) -> list[Any]:
    from rich.text import Text

    from tvm_rammer.commands.render import facts
    from tvm_rammer.units import counted

    decision = region.decision
    skipped = [] if decision is None else [f"{name}: {why}" for name, why in decision.left_out]
    better = f"a faster plan would take {region.explanation.needs}"
    reasons = facts(
        [*region.reasons(), ("better", better), *(("skipped", text) for text in skipped)]
    )
    veus = counted(region.num_veus, "vEU")
    heading = Text.assemble((region.name, "bold"), f"  on {veus}: {region.policy}")
    if decision is None:
        return [heading, "", reasons]
    return [heading, "", _contenders(decision), "", reasons]


def _losses(lost: tuple[Loss, ...]) -> Table:
    """How much sooner the plan would end, as simulated, if a cost were nothing."""
    from tvm_rammer.commands.render import columns
    from tvm_rammer.units import duration

    table = columns("without", "sooner by", "above all, time of vEUs", right=(1,))
    for loss in lost:
        named = ", ".join(f"{name} {duration(seconds)}" for name, seconds in loss.operators)
        table.add_row(loss.cost, duration(loss.seconds), named)
    return table


def _contenders(decision: Decision) -> Table:
    from tvm_rammer.commands.render import columns
    from tvm_rammer.units import counted, duration

    rounds = max(contender.rounds for contender in decision.contenders)
    if all(contender.measured is None for contender in decision.contenders):
        table = columns("plan", "predicted", right=(1,))
    else:
        table = columns("plan", "predicted", "measured", "of sequential", "95 %", right=range(1, 5))
    for contender in decision.contenders:
        measured, ratio, limits = "", "", ""
        if contender.measured is not None and contender.ratio is not None:
            middle, low, high = contender.ratio
            measured, ratio = duration(contender.measured), f"{middle:.3f}"
            limits = f"{low:.3f} to {high:.3f}"
            if contender.rounds < rounds:
                limits = f"{limits}, given up after {counted(contender.rounds, 'round')}"
        chosen = contender.name == decision.chosen
        table.add_row(
            *(contender.name, duration(contender.predicted), measured, ratio, limits)[
                : len(table.columns)
            ],
            style="bold green" if chosen else None,
        )
    return table
