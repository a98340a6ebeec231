#!/usr/bin/env python3
"""Time single operators under this project's default and under its peers.

    python python/bench_operators.py
    python python/bench_operators.py --filter "transposed" --contenders onnxruntime,openvino,auto

Each is a small ONNX model (bench/operator_models.py). Every contender has a process of
its own and they take turns, the others asleep. The worst ratio to the first contender comes first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from bench.operator_models import OperatorModel, operator_models
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from tvm_rammer.errors import RammerError
from tvm_rammer.testing.contenders import available_threads, contender, get_candidate
from tvm_rammer.testing.fair_timing import Settings, time_contenders
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.testing.timing_results import Outcome, paired_ratio

#: Seconds for which the contenders of an operator take turns.
SECONDS = 6.0
#: Relative error up to which outputs agree.
TOLERANCE = 1e-5
#: Columns of text that no terminal shows.
PLAIN_WIDTH = 120


@click.command()
@click.option("--filter", "wanted", default="", help="Only rows whose table or name has this text.")
@click.option(
    "--contenders",
    default="onnxruntime,auto",
    show_default=True,
    help="Names, separated by commas; ratios are to the first.",
)
@click.option("--seconds", default=SECONDS, show_default=True, help="For an operator.")
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
def main(wanted: str, contenders: str, seconds: float, threads: int | None) -> None:
    """Time single operators under this project's default and under its peers."""
    names = [name.strip() for name in contenders.split(",") if name.strip()]
    try:
        for name in names:
            get_candidate(name)
    except RammerError as error:
        raise click.BadParameter(str(error), param_hint="--contenders") from error
    chosen = [m for m in operator_models() if wanted.lower() in f"{m.table} {m.name}".lower()]
    if not chosen:
        raise click.BadParameter(f"no table or row has {wanted!r} in it", param_hint="--filter")
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    settings = Settings(5, 20, 0.2, 0.02, session_s=seconds, tolerance=TOLERANCE)
    progress = track(chosen, "timing", console=Console(stderr=True), transient=True)
    found = [(m, _outcomes(m, names, threads or available_threads(), settings)) for m in progress]
    console.print(_table(names, sorted(found, key=lambda pair: -_worst(pair[1]))))


def _outcomes(
    model: OperatorModel, names: Sequence[str], threads: int, settings: Settings
) -> list[Outcome]:
    proto = model.make()
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        onnx.save(proto, str(path))
        values: dict[str, Any] = dict(random_inputs(proto))
        np.savez(inputs, **values)
        entrants = [contender(name, path, inputs, threads) for name in names]
        return time_contenders(entrants, settings)


def _ratio(outcome: Outcome, first: Outcome) -> float | None:
    both = outcome.status == first.status == "ok"
    return paired_ratio(outcome, first).value if both else None


def _worst(outcomes: list[Outcome]) -> float:
    """What a row is sorted by; one that failed comes first."""
    ratios = [_ratio(outcome, outcomes[0]) for outcome in outcomes[1:]]
    return max((float("inf") if ratio is None else ratio for ratio in ratios), default=0.0)


def _table(names: Sequence[str], rows: Sequence[tuple[OperatorModel, list[Outcome]]]) -> Table:
    table = Table(title="median, ms", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("operator", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for name in names[1:]:
        table.add_column(f"{name} ratio", justify="right")
    table.add_column("error", justify="right")
    for model, outcomes in rows:
        medians = [f"{o.quartiles_ms()[1]:.4g}" if o.status == "ok" else o.status for o in outcomes]
        ratios = [_shown(_ratio(outcome, outcomes[0])) for outcome in outcomes[1:]]
        error = max(outcome.error for outcome in outcomes)
        table.add_row(f"{model.table}: {model.name}", *medians, *ratios, f"{error:.0e}")
        for outcome in outcomes:
            if outcome.note:
                table.add_row(Text(f"  {outcome.name}: {outcome.note}"[:PLAIN_WIDTH], style="dim"))
    return table


def _shown(ratio: float | None) -> Text:
    if ratio is None:
        return Text("-")
    return Text(
        f"{ratio:.2f}x", style="green" if ratio <= 1 else "red" if ratio > 1.5 else "yellow"
    )


if __name__ == "__main__":
    main()
