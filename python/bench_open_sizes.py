#!/usr/bin/env python3
"""Time a model whose sizes each run decides: without a plan, with one for these sizes, its peers.

    python python/bench_open_sizes.py bert.onnx --shape ids=b,t --sizes b=1,t=16 --sizes b=4,t=64

All take turns, each in a process of its own. Floats are standard normal, integers are small, masks
are ones.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from bench.console_table import console_table
from bench.contenders import available_threads, contender, rammer
from rich.console import Console

from tvm_rammer.commands.sources import given_options, shared_options
from tvm_rammer.errors import RammerError
from tvm_rammer.frontend import load_model
from tvm_rammer.runtime.check import drawn
from tvm_rammer.testing.contenders import tvm_contender
from tvm_rammer.testing.fair_timing import Settings, time_contenders

_OPEN, _PLANNED = "open", "planned"
#: Of integers, which may be indices.
_BELOW = 2
_PEERS = ("onnxruntime", "openvino")
#: Of an output's scale.
_TOLERANCE = 1e-3


class _Sizes(click.ParamType):
    name = "NAME=N,NAME=N"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, int]:
        """Sizes by name."""
        pairs = [each.partition("=") for each in str(value).split(",")]
        if not all(name and number.isdecimal() for name, _, number in pairs):
            self.fail(f"{value!r} is not of the form b=1,t=16", param, ctx)
        return {name: int(number) for name, _, number in pairs}


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@shared_options("shapes")
@click.option("--sizes", type=_Sizes(), multiple=True, required=True, help="Of one run.")
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option("--seconds", default=20.0, show_default=True, help="For all of them, of one run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    model: Path,
    shapes: Any,
    sizes: tuple[dict[str, int], ...],
    threads: int | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Compare what leaving sizes open costs."""
    shapes = given_options({"shapes": shapes}).get("shapes", {})
    if isinstance(shapes, list):
        raise click.UsageError("--shape is given more than once: give every input one shape")
    count = threads or available_threads()
    try:
        rows = [{"sizes": each, **timed(model, shapes, each, count, seconds)} for each in sizes]
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    names = [name for name in rows[0] if name != "sizes"]
    cells = [
        (
            ", ".join(f"{name} {size}" for name, size in row["sizes"].items()),
            *("-" if row[name] is None else f"{row[name]:.3g}" for name in names),
        )
        for row in rows
    ]
    Console().print(console_table(f"{model.name}, ms", ("sizes", *names), cells))


def timed(
    model: Path,
    shapes: Mapping[str, Any],
    sizes: Mapping[str, int],
    threads: int,
    seconds: float,
) -> dict[str, float | None]:
    """Median milliseconds of the contenders, by name."""
    infos = [info.with_sizes(sizes) for info in load_model(model, shapes).input_infos]
    known = {info.name: info.static_shape() for info in infos}
    with tempfile.TemporaryDirectory() as folder:
        inputs, rng = Path(folder) / "inputs.npz", np.random.default_rng(0)
        np.savez(inputs, **{info.name: drawn(info, rng, _BELOW) for info in infos})
        options = {"model": str(model), "inputs": str(inputs), "threads": threads, "policy": "auto"}
        ours = [
            tvm_contender(name, rammer, {**options, "shapes": given}, threads)
            for name, given in ((_OPEN, dict(shapes)), (_PLANNED, known))
        ]
        peers = [contender(name, model, inputs, threads) for name in _PEERS]
        settings = Settings(session_s=seconds, tolerance=_TOLERANCE)
        return {
            each.name: each.quartiles_ms()[1] if each.blocks_ns else None
            for each in time_contenders([*ours, *peers], settings)
        }


if __name__ == "__main__":
    main()
