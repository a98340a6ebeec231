#!/usr/bin/env python3
"""What V100, A100 and H100 would take for models, by simulation; nothing is measured.

    python python/estimate_cuda.py --models nasnet_cifar --gpus V100 --json estimate.json
    python python/estimate_cuda.py --json estimate.json --markdown estimate.md

With --json what is in the file is kept, and not simulated again. The largest models take minutes.
Where nvcc is, it says how many registers the merged kernels take.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from bench.cuda_estimate import (
    ESTIMATED,
    CudaEstimate,
    Estimates,
    estimate,
    page,
    with_registers,
)
from rich.console import Console
from rich.progress import track

from tvm_rammer.backend.cuda.cubin import find_tool
from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model

#: The models of Rammer's paper, and others with branches.
USUAL = ("lstm_10x100x256", "seq2seq", "resnext29_16x64d", "nasnet_cifar", "deepspeech2")
USUAL += ("lstm_8x8x256", "mixture_of_experts")


@click.command()
@click.option("--models", default=",".join(USUAL), show_default=True, help="Names, with commas.")
@click.option("--gpus", default=",".join(ESTIMATED), show_default=True, help="Names, with commas.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--markdown", "markdown_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    models: str, gpus: str, quick: bool, json_path: Path | None, markdown_path: Path | None
) -> None:
    """Estimate what GPUs would take for models."""
    unknown = [gpu for gpu in gpus.split(",") if gpu not in ESTIMATED]
    if unknown:
        raise click.BadParameter(
            f"there is no {unknown[0]!r}: choose of {', '.join(ESTIMATED)}", param_hint="--gpus"
        )
    found, compiles = _read(json_path), find_tool("nvcc") is not None
    try:
        wanted = [(get_model(name), gpu) for name in models.split(",") for gpu in gpus.split(",")]
        for info, gpu in track(wanted, "simulating", console=Console(stderr=True), transient=True):
            some = found.setdefault(info.name, {})
            known = some.get(gpu)
            if known and (known.registers is not None or not compiles):
                continue
            model = (info.tiny if quick else info.build)()
            known = known or estimate(model, ESTIMATED[gpu])
            some[gpu] = with_registers(known, model, ESTIMATED[gpu]) if compiles else known
            if json_path:
                _write(json_path, found)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    text = page(found)
    if markdown_path:
        markdown_path.write_text(text)
    click.echo(text)


def _read(path: Path | None) -> Estimates:
    if path is None or not path.exists():
        return {}
    saved = json.loads(path.read_text())
    return {
        name: {gpu: CudaEstimate(**each) for gpu, each in some.items()}
        for name, some in saved.items()
    }


def _write(path: Path, found: Estimates) -> None:
    plain = {name: {gpu: asdict(e) for gpu, e in some.items()} for name, some in found.items()}
    path.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
