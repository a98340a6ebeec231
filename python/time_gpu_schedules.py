#!/usr/bin/env python3
"""Time all schedules of models' operators on a GPU of NVIDIA, beside what the model of one says.

    python python/time_gpu_schedules.py inception_v3 --json schedules.json
    python python/time_gpu_schedules.py inception_v3 --arch sm_90 --program schedules

Every operator of float32 is computed by each schedule that a rule answers, in kernels of their own:
a tile where all resident blocks are busy, and all tiles at once. `--program` writes the program
that times them, for a machine that has a GPU and no compiler; it prints a line of JSON for each.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import click
from bench.console_table import console_table
from bench.cuda_contenders import gpu_here
from bench.gpu_schedules import (
    TimedSchedule,
    choices,
    compile_program,
    program_text,
    schedules_of,
)
from bench.machine import machine
from rich.console import Console

from tvm_rammer.backend import resolve_target
from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model
from tvm_rammer.whole_files import write_whole

SCRIPT = "python/time_gpu_schedules.py"
#: An output may differ by so much, of its largest element: sums are added up in other orders.
_TOLERANCE = 1e-4


@click.command()
@click.argument("model")
@click.option("--quick", is_flag=True, help="The model at the reduced size of the tests.")
@click.option("--arch", help="Of the GPU, such as sm_90; that of the one here if not given.")
@click.option(
    "--program",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the program, and do not run it.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    model: str, quick: bool, arch: str | None, program: Path | None, json_path: Path | None
) -> None:
    """Time the schedules of MODEL's operators, a model of the zoo."""
    gpu = None if program else gpu_here()
    try:
        info = get_model(model)
        target = resolve_target({"kind": "cuda", "arch": arch or (gpu or {}).get("arch")})
        operators, bodies = schedules_of((info.tiny if quick else info.build)(), target)
        text = program_text(operators, bodies, target)
        with tempfile.TemporaryDirectory() as folder:
            path = program or Path(folder, "schedules")
            compile_program(text, str(target.attrs["arch"]), path)
            if program:
                click.echo(f"{program}: {len(bodies)} schedules of {len(operators)} operators")
                return
            times = run(path)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    show(operators, times)
    if json_path:
        facts = {"machine": machine(SCRIPT), "gpu": gpu, "model": model, "schedules": times}
        write_whole(json_path, (json.dumps(facts, indent=1) + "\n").encode())


def run(path: Path) -> dict[str, Any]:
    """What the program measures, by schedule."""
    done = subprocess.run([str(path)], capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(done.stderr.strip())
    _, *lines = map(json.loads, done.stdout.splitlines())
    return {each.pop("key"): each for each in lines}


def show(operators: Sequence[Sequence[TimedSchedule]], times: Mapping[str, Any]) -> None:
    """Print the fastest schedules, and how far the model of a GPU is off."""
    rows = []
    for some in operators:
        for each in sorted(some, key=lambda each: times[each.key]["alone"])[:3]:
            found = times[each.key]
            wrong = "" if found["error"] < _TOLERANCE else f"differs by {found['error']:.1g}"
            cells = (found["alone"], found["tile"], each.tile)
            rows.append(
                [
                    " x ".join(map(str, each.shapes[-1])),
                    each.rule,
                    f"{each.tiles:,}",
                    *(f"{1e6 * cell:.2f}" for cell in cells),
                    wrong,
                ]
            )
    columns = ["result", "rule", "tiles", "all, us", "tile, us", "model, us", ""]
    console = Console()
    console.print(console_table("the three fastest schedules of each operator", columns, rows))
    off = [times[each.key]["tile"] / each.tile for some in operators for each in some]
    console.print(f"a tile takes {median(off):.2f} times what the model says, in the median")
    taken = geometric_mean(list(choices(times, operators)))
    console.print(f"the schedule that the model takes for the fastest takes {taken:.2f} times it")


if __name__ == "__main__":
    main()
