#!/usr/bin/env python3
"""Run plans under CPU load until cores have synchronised ten million times.

    python python/soak.py --json soak.json

Random models of 200 to 500 operators, 100 plans by all policies for 1 to 4 vEUs, a worker for each,
whatever the number of cores. What is counted are waits that were executed, each for an rTask of
another worker. A run that hangs or gives other bits than one worker gives is an error. An
interrupted soak goes on with --resume soak.json.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from stress.soak import Soaked, busy, soak

from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.errors import RammerError


@click.command()
@click.option("--synchronisations", default=10_000_000, show_default=True, type=click.IntRange(1))
@click.option("--plans", default=100, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option(
    "--load", default=1, show_default=True, type=click.IntRange(0), help="Other busy processes."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--resume",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What an interrupted soak of the same seed has written.",
)
def main(
    synchronisations: int,
    plans: int,
    seed: int,
    load: int,
    json_path: Path | None,
    resume: Path | None,
) -> None:
    """Soak the synchronisation of compiled plans."""
    console = Console()
    found, seconds_before = _read(resume) if resume else ([], 0.0)
    started = time.monotonic() - seconds_before
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with busy(load), Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("compiling", total=synchronisations)
        try:
            for soaked in soak(
                synchronisations,
                plans,
                seed,
                lambda done, label: progress.update(bar, completed=done, description=label),
                tuple(found),
            ):
                found.append(soaked)
                if json_path:
                    json_path.write_text(_json(found, time.monotonic() - started, load))
        except RammerError as error:
            raise click.ClickException(str(error)) from error
    seconds = time.monotonic() - started
    console.print(_table(found))
    total = sum(soaked.synchronisations for soaked in found)
    console.print(
        f"{total:,} synchronisations of {len(found)} plans on {host_cpu().cores} cores "
        f"in {seconds:.0f} s, {load} other busy processes: no hang, no wrong result"
    )


def _json(found: list[Soaked], seconds: float, load: int) -> str:
    """All that was done so far, so that nothing is lost with an interrupted soak."""
    total = sum(soaked.synchronisations for soaked in found)
    plans = [asdict(soaked) for soaked in found]
    content = {"synchronisations": total, "seconds": seconds, "load": load, "plans": plans}
    return json.dumps(content, indent=1)


def _read(path: Path) -> tuple[list[Soaked], float]:
    """The plans that an interrupted soak has run, and its seconds."""
    content = json.loads(path.read_text())
    return [Soaked(**plan) for plan in content["plans"]], content["seconds"]


def _table(found: list[Soaked]) -> Table:
    table = Table(title="By number of vEUs")
    for column in ("vEUs", "plans", "runs", "synchronisations", "seconds", "us each"):
        table.add_column(column, justify="right")
    for veus, plans in sorted(Counter(soaked.veus for soaked in found).items()):
        mine = [soaked for soaked in found if soaked.veus == veus]
        done = sum(soaked.synchronisations for soaked in mine)
        seconds = sum(soaked.seconds for soaked in mine)
        each = f"{seconds / done * 1e6:.2f}" if done else "-"
        runs = sum(soaked.runs for soaked in mine)
        table.add_row(str(veus), str(plans), f"{runs:,}", f"{done:,}", f"{seconds:.1f}", each)
    return table


if __name__ == "__main__":
    main()
