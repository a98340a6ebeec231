#!/usr/bin/env python3
"""Time models on a GPU of NVIDIA: this project's forms, stock TVM and PyTorch.

    python python/bench_cuda.py --json cuda.json
    python python/bench_cuda.py --models lstm_8x8x256,nasnet_cifar --contenders per-op,persistent

Every contender has a process of its own and they take turns in blocks of runs while the others
sleep; what computes something else than the rest is not timed. Compiling for a GPU needs CUDA's
compiler (nvcc on the PATH, or the Python package cuda-python with nvrtc).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from bench.console_table import console_table
from bench.cuda_contenders import GPU_CONTENDERS, gpu_contender, gpu_here
from bench.machine import machine
from rich.console import Console
from rich.progress import Progress

from tvm_rammer.backend.cuda.cubin import find_tool
from tvm_rammer.testing.fair_timing import Settings, time_contenders
from tvm_rammer.testing.models import MODELS, get_model
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.testing.timing_results import Outcome

SCRIPT = "python/bench_cuda.py"
#: The models of Rammer's paper, and others with branches.
USUAL = ("lstm_10x100x256", "seq2seq", "resnext29_16x64d", "nasnet_cifar", "deepspeech2")
USUAL += ("lstm_8x8x256", "inception_v3", "bert_base", "mixture_of_experts")
BASELINE = "per-op"


@click.command()
@click.option(
    "--models", default=",".join(USUAL), show_default=True, help="Names, separated by commas."
)
@click.option(
    "--contenders",
    default=",".join(GPU_CONTENDERS),
    show_default=True,
    help="Names, separated by commas.",
)
@click.option("--blocks", type=click.IntRange(1), default=10, show_default=True, help="Turns.")
@click.option("--runs", type=click.IntRange(1), default=20, show_default=True, help="In a turn.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    models: str, contenders: str, blocks: int, runs: int, quick: bool, json_path: Path | None
) -> None:
    """Time models on a GPU of NVIDIA."""
    names = _chosen(models, MODELS, "--models")
    entrants = _chosen(contenders, GPU_CONTENDERS, "--contenders")
    gpu = gpu_here()
    # The same compiler for all who use TVM; without nvcc, TVM's usual one.
    if find_tool("nvcc"):
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    found: dict[str, list[Outcome]] = {}
    settings = Settings(blocks=blocks, runs=runs, timeout_s=1800.0)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name in names:
            info = get_model(name)
            built = (info.tiny if quick else info.build)()
            found[name] = _timed(built, entrants, gpu["arch"], settings, progress)
    console = Console()
    console.print(table(gpu["name"], entrants, found))
    for line in reasons(found):
        console.print(line)
    if json_path:
        outcomes = {name: [each.to_json() for each in some] for name, some in found.items()}
        facts = {"machine": machine(SCRIPT), "gpu": gpu, "quick": quick, "models": outcomes}
        json_path.write_text(json.dumps(facts, indent=1) + "\n")


def _chosen(text: str, known: Mapping[str, Any], option: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise click.BadParameter(f"there is no {name!r}", param_hint=option)
    return names


def _timed(
    model: onnx.ModelProto,
    names: Sequence[str],
    arch: str,
    settings: Settings,
    progress: Progress,
) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        saved, inputs = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
        onnx.save(model, saved)
        np.savez(inputs, **random_inputs(model))
        entrants = [gpu_contender(name, saved, inputs, arch) for name in names]
        return time_contenders(entrants, settings, progress)


def table(gpu: str, names: Sequence[str], found: Mapping[str, Sequence[Outcome]]) -> Any:
    """Medians in milliseconds, with what the same kernels take one by one as a multiple of them."""
    rows = []
    for model, outcomes in found.items():
        timed = {each.name: each.quartiles_ms()[1] for each in outcomes if each.blocks_ns}
        row = [model]
        for outcome in outcomes:
            if outcome.name not in timed:
                row.append(outcome.status)
                continue
            median = timed[outcome.name]
            gain = f" ({timed[BASELINE] / median:.2f}x)" if BASELINE in timed else ""
            row.append(f"{median:.3f}{gain}")
        rows.append(row)
    return console_table(f"ms, {gpu}; in brackets against {BASELINE}", ["model", *names], rows)


def reasons(found: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Why some were not timed."""
    return [
        f"{model}, {each.name}: {each.status}: {each.note}"
        for model, outcomes in found.items()
        for each in outcomes
        if each.note
    ]


if __name__ == "__main__":
    main()
