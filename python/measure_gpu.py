#!/usr/bin/env python3
"""What launches, barriers, hand-overs and loads take on the GPU of NVIDIA that is here.

    python python/measure_gpu.py --json docs/results/gpu_speeds.json

The model of a GPU (`tvm_rammer/backend/cuda/sm_time.py`) reckons with these. Needs nvcc.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import click
from bench.console_table import console_table
from bench.cuda_contenders import gpu_here
from bench.machine import machine
from rich.console import Console

from tvm_rammer.backend.cuda.cubin import find_tool

SCRIPT = "python/measure_gpu.py"
SOURCE = Path(__file__).parent / "bench" / "gpu_speeds.cu"


@click.command()
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(json_path: Path | None) -> None:
    """Measure the GPU that is here."""
    gpu = gpu_here()
    found = measured(gpu["arch"])
    rows = [[each["what"], f"{each['value']:,.4g} {each['unit']}"] for each in found]
    Console().print(console_table(gpu["name"], ["", "median"], rows))
    if json_path:
        facts = {"machine": machine(SCRIPT), "gpu": gpu, "speeds": found}
        json_path.write_text(json.dumps(facts, indent=1) + "\n")


def measured(arch: str) -> list[dict[str, str | float]]:
    """What, how much and its unit, of each speed.

    Parameters
    ----------
    arch : str
        Of the GPU, such as ``"sm_90"``.
    """
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise click.ClickException("nvcc is not there, which compiles what measures")
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "speeds"))
        command = [str(nvcc), "-O3", "-std=c++17", f"-arch={arch}", str(SOURCE), "-o", program]
        subprocess.run(command, check=True)
        done = subprocess.run([program], capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    main()
