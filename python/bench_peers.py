#!/usr/bin/env python3
"""Time models under this project's plans and under its peers.

    python python/bench_peers.py --models squeezenet,lstm_8x8x256 --json results.json

Every contender has a process of its own and they take turns in blocks of runs (see
tvm_rammer/testing/fair_timing.py). With --json an interrupted benchmark goes on where it was: what
is in the file is not measured again. Unless a contender is good, it is tried again.
"""

from __future__ import annotations

import json
import platform
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib import metadata
from os import getloadavg
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tvm_rammer.errors import InputError, RammerError
from tvm_rammer.testing.contenders import CANDIDATES, available_threads, contender, get_candidate
from tvm_rammer.testing.fair_timing import Settings, time_contenders
from tvm_rammer.testing.models import MODELS, before_softmax, get_model
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.testing.timing_results import Outcome, Ratio, paired_ratio

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "onnxruntime", "openvino", "numpy")
_FORMAT = 1


@dataclass(frozen=True)
class Record:
    """One contender on one model; the ratio is to the baseline in the same session."""

    outcome: Outcome
    ratio: Ratio | None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        ratio = asdict(self.ratio) if self.ratio else None
        return {"outcome": self.outcome.to_json(), "ratio": ratio}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        """The record that :meth:`to_json` wrote."""
        ratio = Ratio(**data["ratio"]) if data["ratio"] else None
        return Record(Outcome.from_json(data["outcome"]), ratio)


Results = dict[str, dict[str, Record]]


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--contenders", default="", help="Names, separated by commas; all unless given.")
@click.option("--baseline", default="onnxruntime", show_default=True, help="Ratios are to it.")
@click.option("--blocks", default=10, show_default=True, help="Turns that each contender takes.")
@click.option("--runs", default=20, show_default=True, help="Timed runs in a turn.")
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path))
def main(
    models: str,
    contenders: str,
    baseline: str,
    blocks: int,
    runs: int,
    threads: int | None,
    quick: bool,
    json_path: Path | None,
    markdown: Path | None,
) -> None:
    """Time models under this project's plans and under its peers, fairly.

    The table has medians in milliseconds; --json keeps every run, the ratios with their confidence
    intervals, set-up times and peak memory, and is where an interrupted benchmark goes on.
    """
    console = Console()
    try:
        settings = Settings(blocks=blocks, runs=runs)
        chosen = [get_model(name).name for name in _names(models, MODELS)]
        names = _names(contenders, CANDIDATES)
        for name in names:
            get_candidate(name)
        for path in (json_path, markdown):
            if path and not path.parent.is_dir():
                raise InputError(f"{path}: there is no folder {path.parent}; make it first")
        if baseline not in names:
            raise InputError(f"the baseline {baseline!r} is not among the contenders; add it")
        count = threads or available_threads()
        setting = {"quick": quick, "threads": count, "baseline": baseline}
        results = _load(json_path, setting)
        with _progress() as progress:
            task = progress.add_task("models", total=len(chosen))
            for model in chosen:
                progress.update(task, description=f"[bold]{model}")
                done = results.setdefault(model, {})
                _measure(model, names, done, setting, settings, progress)
                progress.advance(task)
                if json_path:
                    _save(json_path, results, setting)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    shown = {model: results[model] for model in chosen}
    console.print(_table(shown, names))
    for note in _notes(shown, names):
        console.print(note, style="dim", markup=False, highlight=False)
    if markdown:
        markdown.write_text(_markdown(shown, names, setting))


def _measure(
    model: str,
    names: Sequence[str],
    done: dict[str, Record],
    setting: Mapping[str, Any],
    settings: Settings,
    progress: Progress,
) -> None:
    """Time the contenders that have no good record, beside the baseline."""
    open_ = [name for name in names if name not in done or done[name].outcome.status != "ok"]
    if not open_:
        return
    baseline = setting["baseline"]
    session = [baseline, *(name for name in open_ if name != baseline)]
    with tempfile.TemporaryDirectory() as folder:
        model_file, inputs_file = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        _write(model, setting["quick"], model_file, inputs_file)
        outcomes = time_contenders(
            [contender(name, model_file, inputs_file, setting["threads"]) for name in session],
            settings,
            progress,
        )
    for outcome in outcomes:
        if outcome.name in open_:
            timed = outcome.blocks_ns and outcomes[0].blocks_ns
            ratio = paired_ratio(outcome, outcomes[0]) if timed else None
            done[outcome.name] = Record(outcome, ratio)


def _write(model: str, quick: bool, model_file: Path, inputs_file: Path) -> None:
    info = get_model(model)
    # A saturated softmax hides errors: everybody also gives what it reads.
    proto = before_softmax(info.tiny() if quick else info.build())
    onnx.save(proto, str(model_file))
    inputs: dict[str, Any] = dict(random_inputs(proto))
    np.savez(inputs_file, **inputs)


def _names(text: str, known: Iterable[str]) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] or list(known)


def _load(path: Path | None, setting: Mapping[str, Any]) -> Results:
    """What an earlier session measured under the same setting."""
    if path is None or not path.exists():
        return {}
    try:
        data = json.loads(path.read_text())
        same = data["format"] == _FORMAT
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a result of this program; give another file") from error
    if not same or data["setting"] != dict(setting):
        raise InputError(f"{path} was measured with {data['setting']}; give another file")
    return {
        model: {name: Record.from_json(record) for name, record in records.items()}
        for model, records in data["models"].items()
    }


def _save(path: Path, results: Results, setting: Mapping[str, Any]) -> None:
    models = {
        model: {name: record.to_json() for name, record in records.items()}
        for model, records in results.items()
    }
    data = {"format": _FORMAT, "setting": dict(setting), "machine": _machine(), "models": models}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data, indent=1))
    partial.replace(path)  # an interrupt leaves the old file whole


def _machine() -> dict[str, Any]:
    """Where, when, with which versions and how this was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "?")
    return {
        "cpu": cpu,
        "cpus": available_threads(),
        "load_average": getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "python/bench_peers.py", *sys.argv[1:]]),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _rows(results: Results, names: Sequence[str]) -> list[list[str]]:
    rows = []
    for model, records in results.items():
        cells = [_cell(records.get(name)) for name in names]
        rows.append([model, *cells, _against_best_peer(records, names)])
    return rows


def _cell(record: Record | None) -> str:
    if record is None or record.outcome.status == "missing":
        return "-"
    if record.outcome.status != "ok":
        return record.outcome.status
    return f"{record.outcome.quartiles_ms()[1]:.3g}"


def _against_best_peer(records: Mapping[str, Record], names: Sequence[str]) -> str:
    """Our best median over the peers' best."""
    best: dict[bool, float] = {}
    for name in names:
        record = records.get(name)
        if record and record.outcome.status == "ok":
            side, median = CANDIDATES[name].peer, record.outcome.quartiles_ms()[1]
            best[side] = min(best.get(side, median), median)
    return f"{best[False] / best[True]:.2f}x" if len(best) == 2 else "-"


def _columns(names: Sequence[str]) -> list[str]:
    return ["model", *names, "best / best peer"]


def _table(results: Results, names: Sequence[str]) -> Table:
    table = Table(title="median, ms", caption="- : not installed", show_lines=False)
    for number, column in enumerate(_columns(names)):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in _rows(results, names):
        table.add_row(*row)
    return table


def _notes(results: Results, names: Sequence[str]) -> list[str]:
    """Why there is no time: one line per contender and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for model, records in results.items():
        for name in names:
            record = records.get(name)
            if record and record.outcome.status != "ok":
                outcome = record.outcome
                reason = f"{outcome.status}: {outcome.note}"
                reasons.setdefault((name, reason), []).append(model)
    return [f"{name} {reason} ({', '.join(models)})" for (name, reason), models in reasons.items()]


def _markdown(results: Results, names: Sequence[str], setting: Mapping[str, Any]) -> str:
    columns = _columns(names)
    machine = _machine()
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    sizes = "reduced sizes" if setting["quick"] else "full sizes"
    lines = [
        f"Median times in ms, {sizes}, batch as named, float32, {setting['threads']} threads on"
        f" {machine['cpu']}, {machine['date'][:10]}. {versions}.",
        "",
        "| " + " | ".join(columns) + " |",
        "|---" + "|--:" * (len(columns) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in _rows(results, names)),
    ]
    notes = _notes(results, names)
    return "\n".join([*lines, *([""] if notes else []), *(f"- {note}" for note in notes)]) + "\n"


def _progress() -> Progress:
    text = TextColumn("{task.description}")
    console = Console(stderr=True)
    return Progress(SpinnerColumn(), text, BarColumn(), TimeElapsedColumn(), console=console)


if __name__ == "__main__":
    main()
