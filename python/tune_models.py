#!/usr/bin/env python3
"""Tune models with TVM's tuner, and time what that gains.

    python python/tune_models.py squeezenet inception_v1 lstm_8x8x256 --trials 500 --records records
    python python/tune_models.py model.onnx --trials 200 --json

The records of each model are kept in a folder of its own; a second call goes on with them. The
library without tuning and the one by the records run in a process each, taking turns.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from bench.library_race import LibraryRace, race_libraries
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.errors import RammerError
from tvm_rammer.kernel.scheduled import UNTUNED
from tvm_rammer.options import Options
from tvm_rammer.testing.contenders import available_threads
from tvm_rammer.testing.models import MODELS
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.testing.timing_results import Ratio
from tvm_rammer.tuning.journal import Progress as Told
from tvm_rammer.tuning.model import tasks_of


@dataclass(frozen=True)
class Gain:
    """What tuning a model gained.

    Attributes
    ----------
    name : str
    operators, changed : int
        Distinct ones that offer a choice, and those for which another than the untuned is taken.
    measured : int
        Choices in the records.
    kernels : float
        Time of these operators with the records' choices, relative to that without tuning, as it
        was measured one by one.
    ms : (float, float)
        Median milliseconds of the network, without and with the records.
    ratio : Ratio
        Of the network's times.
    """

    name: str
    operators: int
    changed: int
    measured: int
    kernels: float
    ms: tuple[float, float]
    ratio: Ratio


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--trials", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--records",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("tuning-records"),
    show_default=True,
    help="Folder of the records, one in it for each model.",
)
@click.option("--policy", default="auto", show_default=True)
@click.option("--seconds", default=8.0, show_default=True, help="To time one model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    models: tuple[str, ...], trials: int, records: Path, policy: str, seconds: float, as_json: bool
) -> None:
    """Tune models: names of the zoo, or ONNX files."""
    console = Console(stderr=as_json)
    gains = []
    for model in models:
        try:
            gains.append(tuned(model, trials, records, policy, seconds))
        except RammerError as error:
            console.print(f"{model}: {error}", markup=False)
    if as_json:
        click.echo(json.dumps([asdict(gain) for gain in gains], indent=1))
    elif gains:
        console.print(table(gains))
    if len(gains) < len(models):
        sys.exit(1)


def tuned(name: str, trials: int, records: Path, policy: str, seconds: float) -> Gain:
    """Tune a model, build it without and with its records, and time both."""
    model = MODELS[name].build() if name in MODELS else onnx.load(name)
    short = Path(name).stem
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        bar = display.add_task(f"tuning {short}", total=trials)

        def watch(told: Told) -> None:
            display.update(bar, completed=min(told.trials, trials))

        database = tvm_rammer.tune(model, trials=trials, work_dir=records / short, watch=watch)
    untuned_s = best_s = 0.0
    changed = 0
    tasks, _ = tasks_of(tvm_rammer.load_model(model).module, resolve_target(None), Options())
    for each in tasks:
        known = {one.choice.text: one.seconds for one in database.measured(each.task)}
        if UNTUNED in known:
            chosen = database.chosen(each.task)
            changed += bool(chosen)
            untuned_s += each.uses * known[UNTUNED]
            best_s += each.uses * known[chosen[0].text if chosen else UNTUNED]
    race = _timed(model, database, policy, seconds)
    kernels = best_s / untuned_s if untuned_s else 1.0
    return Gain(short, len(tasks), changed, len(database), kernels, race.ms, race.ratio)


def _timed(
    model: onnx.ModelProto, database: tvm_rammer.Database, policy: str, seconds: float
) -> LibraryRace:
    """The library without records against the one by them."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **random_inputs(model))  # type: ignore[arg-type]
        libraries = {}
        for name, records in (("untuned", None), ("tuned", database)):
            library = tvm_rammer.build(model, policy=policy, database=records)
            libraries[name] = library.export_library(Path(folder) / f"{name}.so")
        return race_libraries(libraries, inputs, available_threads(), seconds)


def table(gains: list[Gain]) -> Table:
    """What was gained, a row each."""
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("model")
    for title in ("operators", "changed", "measured", "kernels", "untuned, ms", "tuned, ms"):
        made.add_column(title, justify="right")
    made.add_column("ratio", justify="right")
    for gain in gains:
        interval = f"{gain.ratio.value:.3f}x ({gain.ratio.low:.2f} to {gain.ratio.high:.2f})"
        made.add_row(
            gain.name,
            *map(str, (gain.operators, gain.changed, gain.measured)),
            f"{gain.kernels:.2f}x",
            *(f"{ms:.3g}" for ms in gain.ms),
            interval,
        )
    return made


if __name__ == "__main__":
    main()
