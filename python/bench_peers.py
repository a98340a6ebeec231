#!/usr/bin/env python3
"""Time models under this project's plans and under its peers.

    python python/bench_peers.py --json docs/results/peers.json
    python python/bench_peers.py --models squeezenet,lstm_8x8x256 --contenders all
    python python/bench_peers.py --models resnet50,squeezenet --quantised
    python python/bench_peers.py --quick

Every contender has a process of its own and they take turns in blocks of runs while the others
sleep (see tvm_rammer/testing/fair_timing.py). With --json an interrupted benchmark goes on where it
was: what is in the file is not measured again, unless it failed. Measurements of kernels and plans
are made anew for every model, so that set-up times are those of a model never seen before; those of
kernels are kept for other programs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from math import ceil, inf
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from bench import machine, markdown, peers
from bench.console_table import counted_progress
from bench.contenders import (
    CANDIDATES,
    CORE,
    available_threads,
    contender,
    get_candidate,
)
from bench.fresh_cache import fresh_cache
from bench.own_cores import Patience
from bench.quantise import quantised
from bench.records import Record, ResultFile, Setting, resume
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tvm_rammer.commands.files import require_writable
from tvm_rammer.errors import RammerError
from tvm_rammer.kernel.measured_costs import adopt_costs
from tvm_rammer.testing.fair_timing import FEWEST_BLOCKS, Settings, time_contenders
from tvm_rammer.testing.models import MODELS, before_softmax, get_model
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.units import counted

SCRIPT = "python/bench_peers.py"
#: Seconds for a model, set-up included.
SECONDS, QUICK_SECONDS = 80.0, 12.0
#: Seconds that each contender warms up, and turns that each takes.
WARM_UP, QUICK_WARM_UP = 0.5, 0.1
BLOCKS, QUICK_BLOCKS = 10, 5
#: How long rounds wait for cores of their own, as a part of the seconds for a model.
PATIENCE = 0.5


@dataclass(frozen=True)
class Session:
    """How the contenders on a model are timed."""

    names: tuple[str, ...]
    baseline: str
    setting: Setting
    timing: Settings
    patience: float
    python: dict[str, str]


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option(
    "--contenders",
    default=",".join(CORE),
    show_default=True,
    help="Names, separated by commas, or all.",
)
@click.option(
    "--blocks",
    type=click.IntRange(1),
    help=f"Turns that each contender takes.  [default: {BLOCKS}; {QUICK_BLOCKS} with --quick]",
)
@click.option("--runs", default=20, show_default=True, help="Timed runs in a turn.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.0),
    help=f"For a model, set-up included, but at least {FEWEST_BLOCKS} turns.  "
    f"[default: {SECONDS:g}; {QUICK_SECONDS:g} with --quick]",
)
@click.option(
    "--minutes", type=click.FloatRange(0.0), help="No further model is begun after so many minutes."
)
@click.option(
    "--timeout",
    type=click.FloatRange(1.0),
    default=300.0,
    show_default=True,
    help="Seconds to wait for a contender's set-up, or any other answer.",
)
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--winograd", type=click.Choice(["on", "off"]), default="on", show_default=True)
@click.option(
    "--quantised",
    "as_bytes",
    is_flag=True,
    help="Networks of 8 bits, by ONNX Runtime's tool; outputs, which roundings decide, are not "
    "compared.",
)
@click.option("--torch-python", help="Interpreter that has torch, onnx2torch and its needs.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--markdown", "markdown_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    models: str,
    contenders: str,
    blocks: int | None,
    runs: int,
    seconds: float | None,
    minutes: float | None,
    timeout: float,
    threads: int | None,
    quick: bool,
    winograd: str,
    as_bytes: bool,
    torch_python: str | None,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Time models under this project's plans and under its peers, fairly.

    The table has medians in milliseconds; --json keeps every run, set-up times, peak memory and
    what limits the plans, and is where an interrupted benchmark goes on. python/make_results.py
    makes pages and plots of it.
    """
    console = Console()
    budget = seconds if seconds is not None else QUICK_SECONDS if quick else SECONDS
    try:
        chosen = [get_model(name).name for name in _names(models, MODELS)]
        names = _names("" if contenders == "all" else contenders, CANDIDATES)
        for name in names:
            get_candidate(name)
        for path in filter(None, (json_path, markdown_path)):
            require_writable(path)
        setting = Setting(quick, threads or available_threads(), winograd == "on", as_bytes)
        session = Session(
            tuple(names),
            next((name for name in names if CANDIDATES[name].peer), names[0]),
            setting,
            Settings(
                blocks or (QUICK_BLOCKS if quick else BLOCKS),
                runs,
                QUICK_WARM_UP if quick else WARM_UP,
                session_s=budget,
                timeout_s=timeout,
                tolerance=inf if as_bytes else Settings.tolerance,
            ),
            budget * PATIENCE,
            {"python": torch_python} if torch_python else {},
        )
        results = resume(json_path, setting)
        left = [model for model in chosen if open_contenders(session, results, model)]
        console.print(estimate(len(left), len(chosen), len(names), budget))
        end = time.monotonic() + (inf if minutes is None else 60 * minutes)
        with counted_progress() as progress:
            task = progress.add_task("models", total=len(left))
            for model in left:
                if time.monotonic() > end:
                    break
                progress.update(task, description=f"[bold]{model}")
                measure(model, session, results, progress)
                progress.advance(task)
                if json_path:
                    results.save(json_path)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    shown = {model: results.models[model] for model in chosen if model in results.models}
    if missing := [model for model in chosen if model not in shown]:
        console.print(f"no time was left for {', '.join(missing)}: run it again with --json")
    console.print(_table(shown, names))
    for note in peers.notes(shown, names):
        console.print(note, style="dim", markup=False, highlight=False)
    if markdown_path and shown:
        markdown_path.write_text(page(shown, names, results))


def estimate(left: int, chosen: int, contenders: int, budget: float) -> str:
    """How long it will take, in a sentence."""
    done = f" ({chosen - left} are done)" if left < chosen else ""
    minutes = counted(ceil(left * budget / 60), "minute")
    return (
        f"{counted(left, 'model')}{done}, {counted(contenders, 'contender')}: about {minutes}, "
        f"at {budget:g} s for a model"
    )


def open_contenders(session: Session, results: ResultFile, model: str) -> list[str]:
    """The contenders that have no good record of a model yet."""
    done = results.models.get(model, {})
    return [name for name in session.names if name not in done or not done[name].good]


def measure(
    model: str, session: Session, results: ResultFile, progress: Progress | None = None
) -> None:
    """Time the open contenders on a model, beside the baseline."""
    wanted = open_contenders(session, results, model)
    names = list(dict.fromkeys([session.baseline, *wanted]))
    begin = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory() as folder, fresh_cache() as cache:
        model_file, inputs_file = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        write_model(model, session.setting, model_file, inputs_file)
        outcomes = time_contenders(
            [
                contender(
                    name,
                    model_file,
                    inputs_file,
                    session.setting.threads,
                    cache=cache,
                    **session.python,
                    **({} if session.setting.winograd else {"winograd_tolerance": 0}),
                )
                for name in names
            ],
            session.timing,
            progress,
            Patience(session.patience).wait,
        )
        adopt_costs(cache)
    # A baseline that ran again meets the others in their session: its new record is the useful one
    # where that is the session of our default. Otherwise it was there to compare the outputs.
    made = {o.name: Record(o, begin) for o in outcomes}
    done = results.models.setdefault(model, {})
    again = session.baseline if peers.OURS in wanted and made[session.baseline].good else ""
    done |= {name: record for name, record in made.items() if name in (*wanted, again)}
    results.models[model] = {name: done[name] for name in CANDIDATES if name in done}
    results.machine = machine.machine(SCRIPT, results.machine)


def write_model(model: str, setting: Setting, model_file: Path, inputs_file: Path) -> None:
    """Write a model and its inputs, the same for all contenders."""
    info = get_model(model)
    # A saturated softmax hides errors: everybody also gives what it reads.
    proto = before_softmax(info.tiny() if setting.quick else info.build())
    inputs: dict[str, Any] = dict(random_inputs(proto))
    onnx.save(quantised(proto, inputs) if setting.quantised else proto, str(model_file))
    np.savez(inputs_file, **inputs)


def _names(text: str, known: Iterable[str]) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] or list(known)


def _table(models: peers.Models, names: Sequence[str]) -> Table:
    table = Table(
        title="median, ms",
        caption="- : not installed, or it does not take the model",
        show_lines=False,
    )
    for number, column in enumerate(peers.columns(names)):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in peers.rows(models, names):
        table.add_row(*row)
    return table


def page(models: peers.Models, names: Sequence[str], results: ResultFile) -> str:
    """The table and its notes as Markdown."""
    setting = results.setting
    sizes = "reduced sizes" if setting.quick else "full sizes"
    winograd = "" if setting.winograd else ", Winograd off"
    numbers = "8 bits" if setting.quantised else "float32"
    heading = (
        f"Median times in ms, {sizes}, {numbers}, {setting.threads} threads{winograd}. "
        f"{machine.sentence(results.machine)}"
    )
    lines = [heading, markdown.table(peers.columns(names), peers.rows(models, names))]
    notes = [f"- {note}" for note in peers.notes(models, names)]
    return "\n\n".join([*lines, *(["\n".join(notes)] if notes else [])]) + "\n"


if __name__ == "__main__":
    main()
