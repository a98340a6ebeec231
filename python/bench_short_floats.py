#!/usr/bin/env python3
"""Time programs of PyTorch in floats of 16 bits, and in float32 beside them.

    python python/bench_short_floats.py --models resnet50,bert,llama_step --dtypes float32,bfloat16

The networks are those of the corpus, with random weights. PyTorch's eager mode, its compiler (where
there is one for C++) and this project's libraries take turns, each in a process of its own.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from bench.console_table import console_table
from bench.contenders import available_threads
from bench.medians import medians
from bench.outside.pytorch_contender import program
from bench.program_library import library
from corpus.architectures import ARCHITECTURES
from corpus.entries import Architecture
from corpus.export import made
from rich.console import Console

import tvm_rammer
from tvm_rammer.testing.contenders import outside_contender, tvm_contender
from tvm_rammer.testing.fair_timing import Settings, time_contenders

#: Outputs of 16 bits that went through many layers agree so far.
_TOLERANCE = 0.05
_EAGER, _COMPILED, _OURS = "eager", "compiled", "auto"


@dataclass(frozen=True)
class Row:
    """A network in a type: median milliseconds by contender, and ours over the best other one."""

    model: str
    dtype: str
    ms: dict[str, float]
    ratio: float | None
    notes: dict[str, str]


@click.command()
@click.option("--models", default="resnet50,bert,llama_step", show_default=True)
@click.option("--dtypes", default="float32,bfloat16", show_default=True)
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option("--seconds", default=20.0, show_default=True, help="For a network in a type.")
@click.option("--compiled", is_flag=True, help="PyTorch's compiler as well.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    models: str, dtypes: str, threads: int | None, seconds: float, compiled: bool, as_json: bool
) -> None:
    """Compare this project with PyTorch on programs of torch.export."""
    known = {entry.name: entry for entry in ARCHITECTURES if "torch" in entry.forms}
    names = models.split(",")
    if unknown := sorted(set(names) - set(known)):
        raise click.ClickException(f"no program of the corpus is called {', '.join(unknown)}")
    count = threads or available_threads()
    peers = [_EAGER, *([_COMPILED] if compiled else [])]
    rows = [
        timed(known[name], dtype, count, seconds, peers)
        for name in names
        for dtype in dtypes.split(",")
    ]
    if as_json:
        click.echo(json.dumps([vars(row) for row in rows], indent=2))
        return
    cells = [
        (
            row.model,
            row.dtype,
            *(
                f"{row.ms[n]:.3g}" if n in row.ms else row.notes.get(n, "-")
                for n in [*peers, _OURS]
            ),
            "-" if row.ratio is None else f"{row.ratio:.2f}x",
        )
        for row in rows
    ]
    columns = ("model", "type", *(f"{name}, ms" for name in [*peers, _OURS]), "to the best")
    Console().print(console_table("Programs of PyTorch", columns, cells))


def timed(entry: Architecture, dtype: str, threads: int, seconds: float, peers: list[str]) -> Row:
    """Export, build and time one network."""
    with tempfile.TemporaryDirectory() as folder:
        model, inputs, built = (str(Path(folder) / n) for n in ("m.pt2", "inputs.pt", "m.so"))
        _export(entry, dtype, model, inputs)
        import torch

        tvm_rammer.build(torch.export.load(model)).export_library(built)
        given = {"model": model, "inputs": inputs, "threads": threads}
        contenders = [
            outside_contender(name, program, {**given, "compiled": name == _COMPILED})
            for name in peers
        ]
        ours = tvm_contender(_OURS, library, {"path": built, "inputs": inputs}, threads)
        settings = Settings(session_s=seconds, tolerance=_TOLERANCE)
        found = medians(time_contenders([*contenders, ours], settings), _OURS, peers)
    return Row(entry.name, dtype, *found)


def _export(entry: Architecture, dtype: str, model: str, inputs: str) -> None:
    """Write a program and its inputs; what is an integer stays one."""
    import torch

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    module, values = made(entry)
    values = tuple(v.to(kind) if v.is_floating_point() else v for v in values)
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval().to(kind), values), model)
    torch.save(values, inputs)


if __name__ == "__main__":
    main()
