#!/usr/bin/env python3
"""Tune models with TVM's tuner, and find out what that is worth.

    python python/tune_models.py --results docs/results
    python python/tune_models.py squeezenet lstm_8x8x256 --trials 100 --parts tuned,fronts
    python python/tune_models.py model.onnx --trials 200 --json tuned.json
    python python/tune_models.py squeezenet lstm_8x8x256 --parts spaces --space-trials 64

A study has four parts: what operators and the network gain; how much tuning wins back where
templates choose by wrong numbers of the machine; what it is worth on many vEUs that operators may
choose among their records; and, for the costliest operators, what templates' lists, sketches and
MetaSchedule as it comes find in as many trials. The records of each are kept in a folder of its
own, and every part is saved when it is done: the same command goes on where it was interrupted.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import platformdirs
from bench.console_table import console_answers
from bench.findings import Findings, FindingsSetting
from bench.tuning_study import PARTS, TUNINGS, Network, TuningBudget, TuningStudy
from bench.tuning_tables import TABLES, gains_by_trials, tuning_page, verdicts
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tvm_rammer.errors import InputError, RammerError
from tvm_rammer.tuning.journal import Progress as Told
from tvm_rammer.whole_files import write_whole

SCRIPT = "python/tune_models.py"
#: Convolutions of several kinds, a recurrent network, and a trained one that a package ships.
MODELS = ("squeezenet", "inception_v1", "shufflenet", "lstm_8x8x256", "swift-f0")


@click.command()
@click.argument("models", nargs=-1)
@click.option("--trials", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--parts",
    default=",".join(PARTS),
    show_default=True,
    help="Separated by commas; all models have one before the next begins. The second and the "
    "third have two fifths of the trials.",
)
@click.option(
    "--records",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("tuning-records"),
    show_default=True,
    help="Folder of the records, one in it for each model and part.",
)
@click.option(
    "--space-trials",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Of the last part, for each operator in each space.",
)
@click.option("--policy", default="auto", show_default=True)
@click.option("--seconds", default=8.0, show_default=True, help="To time two networks.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--results",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder for tuning.json, tuning.md and tuning.svg.",
)
def main(
    models: tuple[str, ...],
    trials: int,
    parts: str,
    records: Path,
    space_trials: int,
    policy: str,
    seconds: float,
    quick: bool,
    json_path: Path | None,
    results: Path | None,
) -> None:
    """Tune MODELS: names of the zoo or of trained models of the corpus, or ONNX files."""
    console = Console(stderr=True)
    budget = TuningBudget(trials, seconds, records, policy, space_trials)
    if results:
        json_path = json_path or results / "tuning.json"
    try:
        if results:
            _require_matplotlib()
        wanted = _wanted(parts)
        found = TUNINGS.resume(json_path, FindingsSetting(quick, trials=trials))
        found.failed.clear()
        for part in wanted:
            for name in models or MODELS:
                known = found.found.get(name, TuningStudy())
                if getattr(known, part) is not None or name in found.failed:
                    continue
                started = time.monotonic()
                found.find(SCRIPT, name, done, part, known, budget, quick)
                ended = found.failed.get(name, "done")
                minutes = (time.monotonic() - started) / 60
                console.print(f"{name}, {part}: {ended}, {minutes:.1f} min", markup=False)
                _save(found, json_path, results)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    _print(found)
    sys.exit(bool(found.failed))


def _require_matplotlib() -> None:
    """Hours of measuring are not to end at the first plot."""
    try:
        import_module("bench.plots")
    except ImportError as error:
        raise InputError(
            f'--results draws a plot, and {error.name} is not installed: pip install ".[bench]", '
            "or give --json instead"
        ) from error


def _wanted(text: str) -> list[str]:
    parts = text.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise InputError(f"--parts: there is no part {unknown[0]!r}; known: {', '.join(PARTS)}")
    return parts


def done(
    name: str, part: str, known: TuningStudy, budget: TuningBudget, quick: bool
) -> TuningStudy:
    """A study with one part more."""
    cache = Path(platformdirs.user_cache_dir("tvm-rammer")) / "models"
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        bar = display.add_task(f"{name}, {part}", total=None)

        def watch(told: Told) -> None:
            display.update(bar, completed=min(told.trials, told.of_trials), total=told.of_trials)

        network = Network.named(name, cache, quick)
        made: dict[str, Any] = {part: PARTS[part](network, replace(budget, watch=watch))}
    return replace(known, **made)


def _save(found: Findings[TuningStudy], json_path: Path | None, results: Path | None) -> None:
    if json_path:
        found.save(json_path)
    if results:
        # Not needed to measure, and not installed with the package alone.
        from bench.plots import plot_tuning

        write_whole(results / "tuning.md", tuning_page(found).encode())
        if gains := gains_by_trials(found.found):
            plot_tuning(gains, results / "tuning.svg")


def _print(found: Findings[TuningStudy]) -> None:
    console = Console()
    for table in console_answers(TABLES, found.found):
        console.print(table)
    for line in verdicts(found.found):
        console.print(line, markup=False)
    found.print_failed(console, found.failed)


if __name__ == "__main__":
    main()
