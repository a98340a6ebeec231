#!/usr/bin/env python3
"""Time a model whose weights have 8 bits: data as they are, rounded to 8 bits, and its peers.

    python python/bench_rounding.py minilm.onnx --shape input_ids=1,128 \\
        --shape attention_mask=1,128 --shape token_type_ids=1,128

All take turns, each in a process of its own. An error is the distance from what this project
computes with data as they are, over the norm of that: OpenVINO rounds data unasked, and ONNX
Runtime does where weights are of its DequantizeLinear. Floats are standard normal, integers are
small, masks are ones.
"""

from __future__ import annotations

import json
import tempfile
from math import inf
from pathlib import Path

import click
import numpy as np
from bench.console_table import console_table
from bench.contenders import available_threads, contender, rammer
from rich.console import Console

from tvm_rammer.commands.sources import shared_options
from tvm_rammer.errors import RammerError
from tvm_rammer.frontend import load_model
from tvm_rammer.runtime.check import drawn
from tvm_rammer.testing.contenders import tvm_contender
from tvm_rammer.testing.fair_timing import Settings, time_contenders
from tvm_rammer.testing.timing_results import Outcome

_EXACT, _ROUNDED = "as it is", "rounded"
#: Of integers, which may be indices.
_BELOW = 2
_PEERS = ("onnxruntime", "openvino")


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@shared_options("shapes")
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option("--seconds", default=20.0, show_default=True, help="For all of them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    model: Path,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    threads: int | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Compare what rounding data gains, and what it costs."""
    try:
        outcomes = timed(model, dict(shapes), threads or available_threads(), seconds)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    rows = [
        {
            "contender": each.name,
            "ms": each.quartiles_ms()[1] if each.blocks_ns else None,
            "error": each.error if each.blocks_ns else None,
            "note": each.note,
        }
        for each in outcomes
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    cells = [
        (row["contender"], f"{row['ms']:.3g}", f"{row['error']:.1e}")
        if row["ms"] is not None
        else (row["contender"], "-", row["note"])
        for row in rows
    ]
    Console().print(console_table(model.name, ("contender", "ms", "error"), cells))


def timed(
    model: Path, shapes: dict[str, tuple[int, ...]], threads: int, seconds: float
) -> list[Outcome]:
    """Time the contenders on inputs of these shapes; errors are from the first one's outputs."""
    options = {"threads": threads, "policy": "auto", "shapes": shapes}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **_inputs(model, shapes))
        given = {"model": str(model), "inputs": str(inputs), **options}
        ours = [
            tvm_contender(name, rammer, {**given, "round_data": name == _ROUNDED}, threads)
            for name in (_EXACT, _ROUNDED)
        ]
        peers = [contender(name, model, inputs, threads) for name in _PEERS]
        return time_contenders([*ours, *peers], Settings(session_s=seconds, tolerance=inf))


def _inputs(model: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    infos, rng = load_model(model, shapes).input_infos, np.random.default_rng(0)
    return {info.name: drawn(info, rng, _BELOW) for info in infos}


if __name__ == "__main__":
    main()
