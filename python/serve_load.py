#!/usr/bin/env python3
"""Serve several models to many clients, and look at latencies, memory and every bit of the results.

    python python/serve_load.py
    python python/serve_load.py --minutes 60 --json load.json
    python python/serve_load.py --processes 2 --clients 1 --num-veus 1,2 --onnxruntime
    python python/serve_load.py --models mine.onnx --clients 1,8

Clients are threads with instances of their own; each asks for one model after the other, and waits
for it. Processes run side by side and share the cores. Servers and numbers of clients take turns.
An output with other bits than the same library gives on one thread is an error, and the exit status
is 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from bench.contenders import available_threads
from bench.machine import machine
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from serving.team import Process, Server, onnxruntime, ours, processes, read_models
from serving.turn import Turn, in_a_row, together

from tvm_rammer.errors import RammerError

#: Seconds of a turn, unless that leaves a setting without one.
_TURN = 5.0
_PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Setting:
    """Who serves how many clients in each process."""

    server: Server
    clients: int


def _numbers(_context: Any, _parameter: Any, text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1 or max(found) > 1024:
        raise click.BadParameter("give numbers from 1 to 1024, separated by commas")
    return found


@click.command()
@click.option("--minutes", default=0.8, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option("--clients", default="1,4,16,64", show_default=True, callback=_numbers)
@click.option(
    "--models",
    default="lstm_8x8x256,squeezenet,mlp",
    show_default=True,
    help="Names of the zoo, and ONNX files.",
)
@click.option("--processes", "count", default=1, show_default=True, type=click.IntRange(1, 16))
@click.option(
    "--num-veus",
    default=str(available_threads()),
    show_default=True,
    callback=_numbers,
    help="Numbers of vEUs: a server for each.",
)
@click.option(
    "--onnxruntime", "peers", is_flag=True, help="ONNX Runtime too, as it is and with one thread."
)
@click.option("--tiny", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    minutes: float,
    clients: list[int],
    models: str,
    count: int,
    num_veus: list[int],
    peers: bool,
    tiny: bool,
    json_path: Path | None,
) -> None:
    """Serve models to clients for some minutes, compiling not counted."""
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    try:
        built = read_models(models, tiny)
        with (
            tempfile.TemporaryDirectory() as folder,
            Progress(*columns, console=console, transient=True) as progress,
        ):
            bar = progress.add_task("compiling")
            report = partial(_describe, progress, bar)
            servers = [ours(built, veus, Path(folder), report) for veus in num_veus]
            if peers:
                servers += [onnxruntime(built, threads, Path(folder)) for threads in (0, 1)]
            settings = [Setting(server, number) for number in clients for server in servers]
            found = _served(settings, count, 60 * minutes, progress, bar)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    rows = [_row(setting, count, turn) for setting, turn in zip(settings, found, strict=True)]
    console.print(_table(rows))
    wrong = [message for row in rows for message in row["wrong"]]
    for message in wrong[:10]:
        console.print(message, style="red", markup=False, highlight=False)
    if json_path is not None:
        document = {"machine": machine("python/serve_load.py"), "minutes": minutes, "rows": rows}
        json_path.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(1 if wrong else 0)


def _describe(progress: Progress, bar: Any, text: str) -> None:
    progress.update(bar, description=text)


def _served(
    settings: list[Setting], count: int, seconds: float, progress: Progress, bar: Any
) -> list[Turn]:
    """What each setting did in all of its turns."""
    servers = list({setting.server.name: setting.server for setting in settings}.values())
    rounds = max(1, round(seconds / (_TURN * len(settings))))
    length = seconds / rounds / len(settings)
    found: list[list[Turn]] = [[] for _ in settings]
    progress.update(bar, total=rounds * len(settings))
    with processes([server for server in servers for _ in range(count)]) as started:
        for _ in range(rounds):
            for turns, setting in zip(found, settings, strict=True):
                _describe(progress, bar, f"{setting.server.name}, {setting.clients} clients")
                first = count * servers.index(setting.server)
                turns.append(_turn(started[first : first + count], setting.clients, length))
                progress.advance(bar)
    return [in_a_row(turns) for turns in found]


def _turn(side_by_side: list[Process], clients: int, seconds: float) -> Turn:
    for process in side_by_side:
        process.prepare(clients)
    for process in side_by_side:
        process.begin(seconds)
    return together([process.turn() for process in side_by_side])


def _row(setting: Setting, count: int, turn: Turn) -> dict[str, Any]:
    """A setting and what came of it, as plain data: seconds, bytes."""
    return {
        "server": setting.server.name,
        "processes": count,
        "clients": setting.clients,
        "runs": turn.runs,
        "seconds": turn.seconds,
        "models": {
            name: {
                "runs": each.count,
                **{f"p{percent}": each.percentile(percent) for percent in _PERCENTILES},
                "max": each.longest,
            }
            for name, each in sorted(turn.latencies.items())
        },
        "resident": [turn.resident[0], turn.resident[-1]],
        "compared": bool(setting.server.files[0][3]),
        "wrong": turn.wrong,
        "wrong_runs": turn.counts["wrong"],
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    title = f"{rows[0]['processes']} process{'es' * (rows[0]['processes'] > 1)}, milliseconds"
    table = Table(title=title, box=None, header_style="bold")
    table.add_column("server", no_wrap=True)
    table.add_column("clients", justify="right")
    table.add_column("model", no_wrap=True)
    heads = ("runs/s", *(f"p{percent}" for percent in _PERCENTILES), "max")
    for right in (*heads, "MB", "wrong"):
        table.add_column(right, justify="right", no_wrap=True)
    for row in rows:
        begin, end = (f"{size / 2**20:.0f}" for size in row["resident"])
        wrong = str(row["wrong_runs"]) if row["compared"] else "-"
        total = f"{row['runs'] / row['seconds']:.0f}"
        lines = [(name, *_cells(row, each)) for name, each in row["models"].items()]
        if len(lines) == 1:
            first, *lines = lines
        else:
            first = ("all", total, *[""] * (1 + len(_PERCENTILES)))
        memory = begin if begin == end else f"{begin}..{end}"
        table.add_row(row["server"], str(row["clients"]), *first, memory, wrong)
        for line in lines:
            table.add_row("", "", *line, style="dim")
    return table


def _cells(row: dict[str, Any], model: dict[str, Any]) -> list[str]:
    times = [model[f"p{percent}"] for percent in _PERCENTILES] + [model["max"]]
    return [f"{model['runs'] / row['seconds']:.0f}", *(f"{1e3 * each:.3g}" for each in times)]


if __name__ == "__main__":
    main()
