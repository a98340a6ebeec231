#!/usr/bin/env python3
"""Compare simulated with measured times of plans on this machine.

    python python/check_simulator.py --models lstm_8x8x256,inception_v1 --policies sequential,estf

Every plan is verified and run through the kernel that a build would make; the plans of a model take
turns. A machine that others share changes its speed within minutes: what synchronising and memory
cost is measured at the beginning, and the kernels of a model just before its plans. Other work on
the machine makes plans slower than any simulation: the load is printed too.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from tvm_rammer.codegen.cpu import kernel_ids
from tvm_rammer.codegen.measure_plans import measure_plans
from tvm_rammer.frontend import load_model
from tvm_rammer.schedule import CHOICES, POLICIES, CostModel, plan, simulate
from tvm_rammer.testing.models import MODELS, get_model
from tvm_rammer.transform.co_schedule import signature_of
from tvm_rammer.transform.options import Options
from tvm_rammer.transform.partition_regions import is_region
from tvm_rammer.transform.pipeline import partition_module
from tvm_rammer.vdevice import calibrated, resolve_target, vdevice_for


@dataclass(frozen=True)
class Sample:
    """One plan of one region, in seconds; ``fastest`` is the best round."""

    model: str
    region: str
    policy: str
    simulated: float
    measured: float
    fastest: float

    @property
    def error(self) -> float:
        """How far the simulation is off, relative to the measured median."""
        return self.simulated / self.measured - 1


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--policies", default=",".join(POLICIES), show_default=True)
@click.option("--veus", type=int, help="vEUs; the cores of this process unless given.")
@click.option("--tiny", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, policies: str, veus: int | None, tiny: bool, json_path: Path | None) -> None:
    """Simulate and measure plans, and state the median error."""
    console = Console()
    wanted = policies.split(",")
    if unknown := sorted({*wanted} - {*CHOICES}):
        raise click.BadParameter(f"there is no policy {unknown[0]!r}")
    calibrated(vdevice_for(resolve_target(), veus), refresh=True)
    samples: list[Sample] = []
    for name in models.split(",") if models else MODELS:
        with console.status(f"{name} ..."):
            mine = compare(name, wanted, veus, tiny)
        console.print(_table(name, mine))
        samples += mine
    if samples:
        error = median(abs(sample.error) for sample in samples)
        best = median(abs(sample.simulated / sample.fastest - 1) for sample in samples)
        console.print(
            f"median error {error:.1%} over {len(samples)} plans ({best:.1%} against the fastest "
            f"round); load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        )
    if json_path:
        json_path.write_text(json.dumps([asdict(sample) for sample in samples], indent=1))


def compare(name: str, policies: list[str], veus: int | None, tiny: bool) -> list[Sample]:
    """Simulate and measure plans of all regions of a model."""
    info = get_model(name)
    loaded = load_model(info.tiny() if tiny else info.build())
    target = resolve_target()
    partitioned = partition_module(loaded.module, target, Options())
    compiler, module = partitioned.compiler, partitioned.module
    vdevice = calibrated(vdevice_for(target, veus))
    costs = CostModel.of(vdevice)
    symbols = [symbol for symbol, func in module.functions_items() if is_region(func)]
    with target:
        graphs = [compiler.graph(symbol, module) for symbol in symbols]
        compiler.measure(symbols, refresh=True)
        graphs = [compiler.graph(symbol, module) for symbol in symbols]
        kernels = compiler.module(tuple(signature_of(graph.graph) for graph in graphs))
    ids = kernel_ids(compiler.kernels.bodies)
    found: list[Sample] = []
    for graph in graphs:
        programs = [plan(graph.graph, vdevice, policy) for policy in policies]
        times = measure_plans(
            kernels,
            signature_of(graph.graph),
            ids,
            [(program, False) for program in programs],
            graph.constants,
        )
        for policy, program, mine in zip(policies, programs, times, strict=True):
            seconds = simulate(program, costs).makespan
            found.append(Sample(name, program.name, policy, seconds, median(mine), min(mine)))
    return found


def _table(name: str, samples: list[Sample]) -> Table:
    table = Table(title=name)
    for heading in ("region", "policy"):
        table.add_column(heading)
    for heading in ("simulated us", "measured us", "fastest us", "error"):
        table.add_column(heading, justify="right")
    for sample in samples:
        micro = [f"{s * 1e6:,.1f}" for s in (sample.simulated, sample.measured, sample.fastest)]
        table.add_row(sample.region, sample.policy, *micro, f"{sample.error:+.1%}")
    return table


if __name__ == "__main__":
    main()
