#!/usr/bin/env python3
"""Time what it takes to build models for a GPU; no GPU is needed, nvcc is.

    python python/time_cuda_builds.py --models lstm_8x8x256,lstm_10x100x256
    python python/time_cuda_builds.py --quick --json builds.json

*Generating* is from the model to CUDA C: reading, passes, schedules, lowering. It and nvcc hang on
how many different bodies there are. *Planning* is the rest of the build, for all resident blocks of
the GPU, and hangs on how many operators there are. Wall-clock seconds: compare on a quiet machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

import click
import onnx
from bench.console_table import console_table
from bench.cuda_estimate import kernel_sources
from rich.console import Console
from rich.progress import track

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cuda.cubin import compile_cubin
from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model
from tvm_rammer.whole_files import write_whole

#: Networks with few and with many different bodies, and the LSTM of Rammer's paper, with most
#: operators.
USUAL = "lstm_8x8x256,mixture_of_experts,resnext29_16x64d,nasnet_cifar,lstm_10x100x256"

_T = TypeVar("_T")


@dataclass(frozen=True)
class BuildTimes:
    """Seconds of the steps of one build, and the size of its CUDA C."""

    model: str
    operators: int
    source_kib: float
    generating: float
    nvcc: float
    planning: float


@click.command()
@click.option("--models", default=USUAL, show_default=True, help="Names, separated by commas.")
@click.option("--arch", default="sm_90", show_default=True)
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, arch: str, quick: bool, json_path: Path | None) -> None:
    """Time builds for a GPU."""
    found: list[BuildTimes] = []
    try:
        infos = [get_model(name) for name in models.split(",")]
        for info in track(infos, "building", console=Console(stderr=True), transient=True):
            found.append(build_times(info.name, (info.tiny if quick else info.build)(), arch))
            if json_path:
                text = json.dumps(list(map(asdict, found)), indent=1) + "\n"
                write_whole(json_path, text.encode())
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    columns = [field.name.replace("_", " ") for field in fields(BuildTimes)]
    title = f"seconds of builds for {arch}"
    Console().print(console_table(title, columns, [_row(each) for each in found]))


def build_times(name: str, model: onnx.ModelProto, arch: str) -> BuildTimes:
    """Time the steps of one build.

    Raises
    ------
    DeviceError
        When nvcc is not there or does not know ``arch``.
    """
    target = {"kind": "cuda", "arch": arch}
    sources, generating = _timed(lambda: kernel_sources(model, resolve_target(target)))
    _, nvcc = _timed(lambda: [compile_cubin(source, arch) for source in sources])
    library, whole = _timed(lambda: tvm_rammer.build(model, target=target))
    operators = sum(len(program.operators) for program in library.programs.values())
    size = sum(map(len, sources)) / 1024
    return BuildTimes(name, operators, size, generating, nvcc, max(0.0, whole - generating))


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def _row(each: BuildTimes) -> Sequence[str]:
    numbers = (each.source_kib, each.generating, each.nvcc, each.planning)
    return [each.model, f"{each.operators:,}", *(f"{number:.1f}" for number in numbers)]


if __name__ == "__main__":
    main()
