#!/usr/bin/env python3
"""Measure what single decisions are worth, model by model, and simulate more vEUs.

    python python/ablations.py --json docs/results/ablations.json
    python python/ablations.py --models lstm_8x8x256,inception_v3 --quick

Policies against each other, barriers against point-to-point waits, Winograd off, fewer vEUs: plans
of the same compiled kernels take turns in one process. Simulated with the kernels' measured costs:
all policies on 2 to 64 vEUs, and fast rKernels alone. A model that fails is reported, and the
others go on; with --json what is in the file is not done again.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tvm_rammer.errors import InputError, RammerError
from tvm_rammer.testing.bench import machine
from tvm_rammer.testing.bench.ablation_file import Ablations, AblationSetting, resume_ablations
from tvm_rammer.testing.bench.ablation_tables import TABLES
from tvm_rammer.testing.bench.study import Study, study
from tvm_rammer.testing.models import MODELS, get_model

SCRIPT = "python/ablations.py"


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--veus", default="2,4,8,16,64", show_default=True, help="To simulate.")
@click.option("--seconds", default=6.0, show_default=True, help="Of timing for a model.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, veus: str, seconds: float, quick: bool, json_path: Path | None) -> None:
    """Measure what single decisions are worth."""
    console = Console()
    try:
        names = [name.strip() for name in models.split(",") if name.strip()] or list(MODELS)
        chosen = [get_model(name).name for name in names]
        if json_path and not json_path.parent.is_dir():
            raise InputError(f"{json_path}: there is no folder {json_path.parent}; make it first")
        found = resume_ablations(json_path, AblationSetting(quick, _counts(veus)))
        left = [name for name in chosen if name not in found.studies]
        for name in track(left, "studying", console=Console(stderr=True), transient=True):
            measure(found, name, quick, seconds)
            if json_path:
                found.save(json_path)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    studies = {name: found.studies[name] for name in chosen if name in found.studies}
    for table in TABLES:
        if rows := table.rows(studies):
            console.print(_table(table.title, table.columns(studies), rows))
    for name in chosen:
        if name in found.failed:
            console.print(f"{name} failed: {found.failed[name]}", style="red", markup=False)


def measure(found: Ablations, name: str, quick: bool, seconds: float) -> None:
    """Study a model in a process of its own: one that crashes takes nothing else along."""
    found.failed.pop(name, None)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        future = pool.submit(_study, name, quick, seconds, found.setting.veus)
        try:
            found.studies[name] = Study.from_json(future.result())
        except BrokenProcessPool:
            found.failed[name] = "its process ended"
        except Exception as error:
            found.failed[name] = f"{type(error).__name__}: {error}"
    found.machine = machine.machine(SCRIPT)


def _study(name: str, quick: bool, seconds: float, counts: Sequence[int]) -> dict[str, Any]:
    info = get_model(name)
    return asdict(study(info.tiny() if quick else info.build(), seconds, counts))


def _counts(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"--veus {text!r} is no list of positive whole numbers, such as 2,4,8")
    return tuple(map(int, parts))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    main()
