#!/usr/bin/env python3
"""Time the kernels of single operators on one core, next to what the core reaches at best.

    python python/bench_kernels.py
    python python/bench_kernels.py --filter depthwise --json kernels.json
    python python/bench_kernels.py --target '{"kind": "llvm", "mcpu": "x86-64-v3"}'

Operands lie in the nearest caches that hold them. The share is that of the core's multiply-adds
where the rate is in GFLOP/s, else that of the roofline: the most that reading the same bytes, or
computing the same operations, allows. Useful operations are those of a direct convolution with all
its padding, so that the share of one that skips the padding, or of Winograd's algorithm, may be
above 100 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
from bench.kernel_bench import CaseResult, measure_case
from bench.kernel_cases import KernelCase, kernel_cases
from bench.kernel_page import KernelResults, read_speeds
from bench.machine import machine
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.host.measure_ceilings import ceilings
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.units import duration

SCRIPT = "python/bench_kernels.py"
#: Seconds for which a case is timed.
SECONDS, QUICK_SECONDS = 0.1, 0.01
#: Columns of text that no terminal shows.
PLAIN_WIDTH = 120


@click.command()
@click.option("--filter", "wanted", default="", help="Only rows whose table or name has this text.")
@click.option("--quick", is_flag=True, help="Two rows of each table, timed briefly.")
@click.option("--target", help="A TVM target of this machine, such as one with narrower vectors.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(wanted: str, quick: bool, target: str | None, json_path: Path | None) -> None:
    """Time the kernels of single operators on one core."""
    resolved = resolve_target(target)
    vdevice = vdevice_for(resolved)
    reached = ceilings(resolved, vdevice, refresh=True)
    if reached is None:
        raise click.ClickException(f"{vdevice.name} is another machine: nothing can be timed")
    cases = list(chosen(wanted, quick))
    if not cases:
        raise click.BadParameter(f"no table or row has {wanted!r} in it", param_hint="--filter")
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    console.print(
        f"{vdevice.name}, one core: {reached.flops / 1e9:.0f} GFLOP/s; {read_speeds(reached)}"
    )
    progress = track(cases, "timing", console=Console(stderr=True), transient=True)
    seconds = QUICK_SECONDS if quick else SECONDS
    results = [
        measure_case(case, resolved, vdevice, reached, DEFAULT_TOLERANCE, seconds)
        for case in progress
    ]
    for table, rows in groupby(results, lambda result: result.table):
        console.print(_table(table, list(rows)))
    if json_path:
        found = KernelResults(str(resolved), vdevice.name, reached, machine(SCRIPT), tuple(results))
        found.save(json_path)


def chosen(wanted: str, quick: bool) -> Iterator[KernelCase]:
    """The cases that were asked for."""
    for table, cases in groupby(kernel_cases(), lambda case: case.table):
        matching = [case for case in cases if wanted.lower() in f"{table} {case.name}".lower()]
        yield from matching[: 2 if quick else None]


def _table(title: str, results: list[CaseResult]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("operator", no_wrap=True, min_width=18)
    headings = {"time": 8, "±": 4, results[0].unit: 7, "share": 5, "error": 6, "build": 7}
    for heading, width in headings.items():
        table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    table.add_column("kernels", style="dim")
    for result in results:
        kernels = "; ".join(map(" ".join, zip(result.kernels, result.tilings, strict=True)))
        table.add_row(
            result.name,
            duration(result.seconds),
            Text(f"{result.spread:.0%}", style="dim"),
            f"{result.rate:.3g}",
            _share(result.ceiling_share),
            f"{result.error:.0e}",
            Text(duration(result.schedule_seconds + result.compile_seconds), style="dim"),
            Text(kernels, no_wrap=True, overflow="ellipsis"),
        )
    return table


def _share(share: float) -> Text:
    style = "green" if share >= 0.85 else "red" if share < 0.5 else "yellow"
    return Text(f"{share:.0%}", style=style)


if __name__ == "__main__":
    main()
