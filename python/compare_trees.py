#!/usr/bin/env python3
"""Time what two checkouts of this project make of the same models, taking turns.

    git worktree add ../before HEAD~20
    python python/compare_trees.py ../before . squeezenet lstm_8x8x256 some/model.onnx

Each checkout compiles in a process of its own, with a cache of its own; the libraries then run in a
process each, the other asleep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import click
import numpy as np
import onnx
from bench.contenders import available_threads
from bench.library_race import race_libraries
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import MODELS
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.testing.timing_results import Ratio


@dataclass(frozen=True)
class Row:
    """One model: seconds to compile and median milliseconds, before and after."""

    name: str
    build_s: tuple[float, float]
    ms: tuple[float, float]
    ratio: Ratio


@click.command()
@click.argument("before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("models", nargs=-1, required=True)
@click.option("--policy", default="auto", show_default=True)
@click.option("--seconds", default=8.0, show_default=True, help="To time one model.")
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    before: Path,
    after: Path,
    models: tuple[str, ...],
    policy: str,
    seconds: float,
    threads: int | None,
    as_json: bool,
) -> None:
    """Time what two checkouts make of models: names of the zoo, or ONNX files."""
    console = Console(stderr=as_json)
    rows = []
    for model in track(models, "comparing", console=Console(stderr=True), transient=True):
        try:
            rows.append(_row(model, (before, after), policy, threads, seconds))
        except (RammerError, subprocess.CalledProcessError) as error:
            console.print(f"{model}: {error}", markup=False)
    if as_json:
        click.echo(json.dumps([{**vars(row), "ratio": vars(row.ratio)} for row in rows], indent=1))
    elif rows:
        console.print(_table(rows))


def _row(
    model: str, trees: tuple[Path, Path], policy: str, threads: int | None, seconds: float
) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        onnx.save(MODELS[model].build() if model in MODELS else onnx.load(model), str(path))
        np.savez(inputs, **random_inputs(onnx.load(str(path))))  # type: ignore[arg-type]
        libraries = [Path(folder) / f"{number}.so" for number in range(2)]
        build_s = [
            _compile(tree.resolve(), path, library, policy)
            for tree, library in zip(trees, libraries, strict=True)
        ]
        # A checkout loads what it compiled: formats change.
        race = race_libraries(
            dict(zip(("before", "after"), libraries, strict=True)),
            inputs,
            threads or available_threads(),
            seconds,
            dict(zip(("before", "after"), trees, strict=True)),
        )
    return Row(model, (build_s[0], build_s[1]), race.ms, race.ratio)


def _compile(tree: Path, model: Path, library: Path, policy: str) -> float:
    """Seconds that a checkout takes to compile a model, with nothing in its cache."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "TVM_RAMMER_CACHE_DIR": str(library.with_suffix(".cache")),
    }
    command = [sys.executable, "-m", "tvm_rammer", "compile", str(model), "-o", str(library)]
    started = time.perf_counter()
    subprocess.run(
        [*command, "--policy", policy],
        env=environment,
        cwd=tree,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def _table(rows: list[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("model")
    for title in ("compiled, s", "now, s", "ran, ms", "now, ms", "ratio", "interval"):
        table.add_column(title, justify="right")
    for row in rows:
        figures = (*row.build_s, *row.ms)
        interval = f"{row.ratio.low:.2f} to {row.ratio.high:.2f}"
        shown = (f"{figure:.3g}" for figure in figures)
        table.add_row(row.name, *shown, f"{row.ratio.value:.3f}x", interval)
    mean = geometric_mean([row.ratio.value for row in rows])
    table.add_row("geometric mean", "", "", "", "", f"{mean:.3f}x", "")
    return table


if __name__ == "__main__":
    main()
