#!/usr/bin/env python3
"""Time networks of PyTorch on a GPU of NVIDIA: PyTorch, torch.compile, and this project.

    python python/bench_pytorch_cuda.py --json pytorch_cuda.json
    python python/bench_pytorch_cuda.py --models lstm_8x8x256,mobilenet_v3_large

Every contender has a process of its own and they take turns in blocks of runs while the others
sleep; what computes something else than the rest is not timed. Libraries are built before, several
at the same time. Needs PyTorch, the library of a network (torchvision, timm, transformers), and
CUDA's compiler (nvcc on the PATH).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from bench.console_table import console_table
from bench.cuda_contenders import gpu_here
from bench.machine import machine
from bench.pytorch_on_gpu import (
    CONTENDERS,
    NETWORKS,
    library_file,
    network_contender,
    write_library,
)
from bench_cuda import reasons
from rich.console import Console
from rich.progress import Progress

from tvm_rammer.testing.fair_timing import Settings, time_contenders
from tvm_rammer.testing.timing_results import Outcome

SCRIPT = "python/bench_pytorch_cuda.py"
#: Small operators, branches, and what people have.
USUAL = ("lstm_8x8x256", "experts_16x256", "inception_v3", "mobilenet_v3_large", "densenet121")
OURS = "rammer-graph"


@click.command()
@click.option(
    "--models", default=",".join(USUAL), show_default=True, help="Names, separated by commas."
)
@click.option("--blocks", type=click.IntRange(1), default=10, show_default=True, help="Turns.")
@click.option("--runs", type=click.IntRange(1), default=20, show_default=True, help="In a turn.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=len(os.sched_getaffinity(0)),
    show_default=True,
    help="Libraries that are built at the same time.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, blocks: int, runs: int, jobs: int, json_path: Path | None) -> None:
    """Time networks of PyTorch on a GPU of NVIDIA."""
    names = models.split(",")
    for name in names:
        if name not in NETWORKS:
            raise click.BadParameter(
                f"there is no {name!r}; known are {', '.join(NETWORKS)}", param_hint="--models"
            )
    if find_spec("torch") is None:
        raise click.ClickException("PyTorch is not installed: pip install torch torchvision")
    gpu = gpu_here()
    settings = Settings(blocks=blocks, runs=runs, timeout_s=1800.0)
    found: dict[str, list[Outcome]] = {}
    with (
        tempfile.TemporaryDirectory() as made,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        folder = Path(made)
        build_libraries(names, gpu["arch"], folder, jobs, progress)
        for name in names:
            entrants = [network_contender(each, name, gpu["arch"], folder) for each in CONTENDERS]
            found[name] = time_contenders(entrants, settings, progress)
    console = Console()
    console.print(table(gpu["name"], found))
    for line in reasons(found):
        console.print(line)
    if json_path:
        outcomes = {name: [each.to_json() for each in some] for name, some in found.items()}
        facts = {"machine": machine(SCRIPT), "gpu": gpu, "models": outcomes}
        json_path.write_text(json.dumps(facts, indent=1) + "\n")


def build_libraries(
    names: Sequence[str], arch: str, folder: Path, jobs: int, progress: Progress
) -> None:
    """Write the libraries of networks, in so many processes at a time.

    One that cannot be built is left out: who needs it tries again, and says why.
    """
    task = progress.add_task("building", total=len(names))
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(names)), mp_context=spawned) as pool:
        built = [pool.submit(write_library, n, arch, library_file(n, folder)) for n in names]
        for _ in as_completed(built):
            progress.advance(task)


def table(gpu: str, found: Mapping[str, Sequence[Outcome]]) -> Any:
    """Medians in milliseconds, in brackets over this project's as a graph."""
    rows = []
    for model, outcomes in found.items():
        timed = {each.name: each.quartiles_ms()[1] for each in outcomes if each.blocks_ns}
        row = [model]
        for outcome in outcomes:
            median = timed.get(outcome.name)
            over = f" ({median / timed[OURS]:.2f}x)" if median and OURS in timed else ""
            row.append(outcome.status if median is None else f"{median:.3f}{over}")
        rows.append(row)
    return console_table(f"ms, {gpu}; in brackets over {OURS}", ["model", *CONTENDERS], rows)


if __name__ == "__main__":
    main()
