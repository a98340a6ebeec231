#!/usr/bin/env python3
"""Simulate every policy on the model zoo: speed-up over sequential at several numbers of vEUs.

    python python/compare_policies.py --models lstm_8x8x256,inception_v3 --json results.json

Nothing is compiled or run, so that plans for 64 vEUs can be studied on two cores. The last column
is the speed-up of a makespan that no plan of the same rKernels can beat.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tvm_rammer.frontend import load_model
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.schedule import POLICIES, CostModel, bounds, simulate, synchronise
from tvm_rammer.testing.models import MODELS, get_model
from tvm_rammer.transform.options import Options
from tvm_rammer.transform.partition_regions import is_region
from tvm_rammer.transform.pipeline import partition_module
from tvm_rammer.vdevice import VDevice, resolve_target, vdevice_for


@dataclass(frozen=True)
class Result:
    """One policy on all regions of a model; the seconds are sums over them."""

    model: str
    num_veus: int
    policy: str
    makespan: float
    bound: float
    planning: float


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--veus", default="2,4,8,16,64", show_default=True, help="Numbers of vEUs.")
@click.option("--tiny", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, veus: str, tiny: bool, json_path: Path | None) -> None:
    """Compare the policies by simulation."""
    console = Console()
    counts = _counts(veus)
    results: list[Result] = []
    for name in models.split(",") if models else MODELS:
        graphs = operator_graphs(name, tiny)
        for num_veus in counts:
            mine = [simulated(name, graphs, num_veus, policy) for policy in POLICIES]
            results += mine
        console.print(_table(name, sum(len(g.operators) for g in graphs), counts, results))
    if json_path:
        json_path.write_text(json.dumps([asdict(result) for result in results], indent=1))


def _counts(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is no list of positive whole numbers, such as 2,4,8")
    return [int(part) for part in parts]


def operator_graphs(name: str, tiny: bool) -> list[OperatorGraph]:
    """The operator graphs of a model's regions, their rKernels costed but not compiled."""
    info = get_model(name)
    loaded = load_model(info.tiny() if tiny else info.build())
    target = resolve_target()
    partitioned = partition_module(loaded.module, target, Options())
    regions = [s for s, func in partitioned.module.functions_items() if is_region(func)]
    with target:
        return [partitioned.compiler.graph(s, partitioned.module).graph for s in regions]


def simulated(model: str, graphs: list[OperatorGraph], num_veus: int, policy: str) -> Result:
    """Plan and simulate all regions with the costs that are known of this machine."""
    known = vdevice_for()
    costs = CostModel.of(known)
    vdevice = VDevice(known.name, num_veus=num_veus, l2_bytes=known.l2_bytes)
    makespan = bound = planning = 0.0
    for graph in graphs:
        begin = time.process_time()
        program = synchronise(graph, POLICIES[policy](graph, vdevice, costs))
        planning += time.process_time() - begin
        makespan += simulate(program, costs).makespan
        bound += bounds(program).makespan + costs.launch
    return Result(model, num_veus, policy, makespan, bound, planning)


def _table(name: str, operators: int, counts: list[int], results: list[Result]) -> Table:
    table = Table(title=f"{name}, {operators} operators: simulated speed-up over sequential")
    table.add_column("vEUs", justify="right")
    for column in (*(p for p in POLICIES if p != "sequential"), "bound"):
        table.add_column(column, justify="right")
    for num_veus in counts:
        mine = {r.policy: r for r in results if (r.model, r.num_veus) == (name, num_veus)}
        base = mine.pop("sequential").makespan
        best = min(result.makespan for result in mine.values())
        cells = [_cell(base / r.makespan, r.makespan == best) for r in mine.values()]
        bound = min(result.bound for result in mine.values())
        table.add_row(str(num_veus), *cells, f"{base / bound:.2f}")
    return table


def _cell(speed_up: float, best: bool) -> str:
    return f"[bold green]{speed_up:.2f}[/]" if best else f"{speed_up:.2f}"


if __name__ == "__main__":
    main()
