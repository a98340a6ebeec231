#!/usr/bin/env python3
"""A pre-forking server, a thread pool and a process that reloads its model, at the same time.

    python python/serve_together.py --minutes 10 --json together.json

The first process loads the models and forks workers, the second has a client thread for each
number of the pool, the third replaces the file of its library every second and loads it again. An
output with other bits than the same library gives on one thread is an error, as is memory that
grows by more than a part; the exit status is 1 then.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import click
from bench.contenders import available_threads
from bench.machine import machine
from rich.console import Console
from rich.table import Table
from serving.team import ours, processes, read_models
from serving.turn import Turn

from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import lstm

#: Memory is what it was in the median of a tenth of the time, after a first one to settle.
_PARTS = 10
_VERSIONS = 2


@click.command()
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option("--forked", default=4, show_default=True, type=click.IntRange(1), help="Workers.")
@click.option("--threads", default=16, show_default=True, type=click.IntRange(1), help="Clients.")
@click.option("--models", default="lstm_8x8x256,squeezenet,mlp", show_default=True)
@click.option(
    "--num-veus", default=available_threads(), show_default=True, type=click.IntRange(1, 64)
)
@click.option(
    "--growth", default=0.05, show_default=True, help="Part by which memory may grow at most."
)
@click.option("--tiny", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    minutes: float,
    forked: int,
    threads: int,
    models: str,
    num_veus: int,
    growth: float,
    tiny: bool,
    json_path: Path | None,
) -> None:
    """Serve in three ways together for some minutes, compiling not counted."""
    console = Console()
    try:
        built = read_models(models, tiny)
        sizes = (2, 3, 16) if tiny else (4, 8, 256)
        versions = {f"version {k}": lstm(*sizes, seed=k) for k in range(_VERSIONS)}
        with tempfile.TemporaryDirectory() as folder, console.status("compiling") as status:
            report = status.update
            server = ours(built, num_veus, Path(folder), report)
            reloaded = replace(ours(versions, num_veus, Path(folder), report), reloads=True)
            with processes([server, server, reloaded]) as started:
                for process, clients in zip(started, (forked, threads, 1), strict=True):
                    process.prepare(clients, forked=process is started[0])
                for process in started:
                    process.begin(60 * minutes)
                status.update("serving")
                turns = [process.turn() for process in started]
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    names = (f"{forked} forked workers", f"{threads} threads", "reloaded each second")
    rows = [_row(name, turn, growth) for name, turn in zip(names, turns, strict=True)]
    console.print(_table(rows))
    wrong = [message for row in rows for message in row["wrong"]]
    for message in wrong:
        console.print(message, style="red", markup=False, highlight=False)
    if json_path is not None:
        facts = machine("python/serve_together.py")
        document = {"machine": facts, "minutes": minutes, "rows": rows}
        json_path.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(1 if wrong else 0)


def _row(name: str, turn: Turn, most: float) -> dict[str, Any]:
    part = len(turn.resident) // _PARTS
    first, last = median(turn.resident[part : 2 * part]), median(turn.resident[-part:])
    wrong = list(turn.wrong)
    if last > first * (1 + most):
        wrong.append(f"{name}: memory grew by {last / first - 1:.1%}; {most:.0%} may be")
    return {
        "name": name,
        "runs": turn.runs,
        "seconds": turn.seconds,
        "loads": turn.counts["loads"],
        "p99": max((each.percentile(99) for each in turn.latencies.values()), default=0.0),
        "resident": [first, last],
        "wrong": wrong,
        "wrong_runs": turn.counts["wrong"],
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("process")
    for right in ("runs", "loads", "p99 ms", "MB", "at the end", "wrong"):
        table.add_column(right, justify="right")
    for row in rows:
        memory = [f"{size / 2**20:.1f}" for size in row["resident"]]
        p99, loads = f"{1e3 * row['p99']:.3g}", str(row["loads"] or "")
        table.add_row(row["name"], f"{row['runs']:,}", loads, p99, *memory, str(row["wrong_runs"]))
    return table


if __name__ == "__main__":
    main()
