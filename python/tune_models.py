#!/usr/bin/env python3
"""Tune models with TVM's tuner, and time what that gains.

    python python/tune_models.py squeezenet inception_v1 lstm_8x8x256 --trials 500 --records records
    python python/tune_models.py model.onnx --trials 200 --json
    python python/tune_models.py squeezenet --trials 200 --wrong-numbers

The records of each model are kept in a folder of its own; a second call goes on with them. The
library without tuning and the one by the records run in a process each, taking turns.

With --wrong-numbers templates choose by half the registers, twice the latencies and a quarter of
the second-level cache, and the table has what that lost and how much of it tuning won back.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from bench.library_race import LibraryRace, race_libraries
from bench.wrong_numbers import WonBack, numbers, wrong
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
@click.option("--wrong-numbers", is_flag=True, help="How much tuning wins back of what those lose.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    models: tuple[str, ...],
    trials: int,
    records: Path,
    policy: str,
    seconds: float,
    wrong_numbers: bool,
    as_json: bool,
) -> None:
    """Tune models: names of the zoo, or ONNX files."""
    console = Console(stderr=as_json)
    gains: list[Gain] = []
    losses: list[WonBack] = []
    for model in models:
        try:
            if wrong_numbers:
                losses.append(won_back(model, trials, records, policy, seconds))
            else:
                gains.append(tuned(model, trials, records, policy, seconds))
        except RammerError as error:
            console.print(f"{model}: {error}", markup=False)
    found = losses if wrong_numbers else gains
    if as_json:
        shares = [{"won_back": each.share} for each in losses] or [{}] * len(gains)
        documents = [asdict(each) | share for each, share in zip(found, shares, strict=True)]
        click.echo(json.dumps(documents, indent=1))
    elif found:
        console.print(table_of_losses(losses) if wrong_numbers else table(gains))
    if len(found) < len(models):
        sys.exit(1)


def tuned(name: str, trials: int, records: Path, policy: str, seconds: float) -> Gain:
    """Tune a model, build it without and with its records, and time both."""
    model, short = _read(name), Path(name).stem
    database = _records(model, short, trials, records)
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
    libraries = {
        "untuned": tvm_rammer.build(model, policy=policy),
        "tuned": tvm_rammer.build(model, policy=policy, database=database),
    }
    (race,) = _timed(model, libraries, seconds)
    kernels = best_s / untuned_s if untuned_s else 1.0
    return Gain(short, len(tasks), changed, len(database), kernels, race.ms, race.ratio)


def won_back(name: str, trials: int, records: Path, policy: str, seconds: float) -> WonBack:
    """Build a model by true numbers, by wrong ones, and by those with what tuning found."""
    model, short = _read(name), f"{Path(name).stem} by wrong numbers"
    true = tvm_rammer.build(model, policy=policy)
    with numbers(wrong):
        database = _records(model, short, trials, records)
        libraries = {
            "wrong": tvm_rammer.build(model, policy=policy),
            "true": true,
            "tuned": tvm_rammer.build(model, policy=policy, database=database),
        }
    by_true, by_tuning = _timed(model, libraries, seconds)
    ms = (by_true.ms[1], by_true.ms[0], by_tuning.ms[1])
    return WonBack(Path(name).stem, ms, by_true.ratio, by_tuning.ratio)


def _read(name: str) -> onnx.ModelProto:
    return MODELS[name].build() if name in MODELS else onnx.load(name)


def _records(model: onnx.ModelProto, name: str, trials: int, records: Path) -> tvm_rammer.Database:
    """Those of a model, tuned with so many trials."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        bar = display.add_task(f"tuning {name}", total=trials)

        def watch(told: Told) -> None:
            display.update(bar, completed=min(told.trials, trials))

        folder = records / name.replace(" ", "-")
        return tvm_rammer.tune(model, trials=trials, work_dir=folder, watch=watch)


def _timed(
    model: onnx.ModelProto, libraries: Mapping[str, tvm_rammer.Library], seconds: float
) -> list[LibraryRace]:
    """The first library against each of the others."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **random_inputs(model))  # type: ignore[arg-type]
        files = {
            name: library.export_library(Path(folder) / f"{name}.so")
            for name, library in libraries.items()
        }
        first, *others = files
        return [
            race_libraries(
                {name: files[name] for name in (first, other)},
                inputs,
                available_threads(),
                seconds,
            )
            for other in others
        ]


def table(gains: list[Gain]) -> Table:
    """What was gained, a row each."""
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("model")
    for title in ("operators", "changed", "measured", "kernels", "untuned, ms", "tuned, ms"):
        made.add_column(title, justify="right")
    made.add_column("ratio", justify="right")
    for gain in gains:
        made.add_row(
            gain.name,
            *map(str, (gain.operators, gain.changed, gain.measured)),
            f"{gain.kernels:.2f}x",
            *(f"{ms:.3g}" for ms in gain.ms),
            _interval(gain.ratio),
        )
    return made


def table_of_losses(losses: list[WonBack]) -> Table:
    """What wrong numbers lost and tuning won back, a row each."""
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("model")
    for title in ("true, ms", "wrong, ms", "tuned, ms", "true to wrong", "tuned to wrong"):
        made.add_column(title, justify="right")
    made.add_column("won back", justify="right")
    for each in losses:
        made.add_row(
            each.name,
            *(f"{ms:.3g}" for ms in each.ms),
            _interval(each.lost),
            _interval(each.tuned),
            "nothing was lost" if each.share is None else f"{each.share:.0%}",
        )
    return made


def _interval(ratio: Ratio) -> str:
    return f"{ratio.value:.3f}x ({ratio.low:.2f} to {ratio.high:.2f})"


if __name__ == "__main__":
    main()
