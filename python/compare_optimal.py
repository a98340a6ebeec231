#!/usr/bin/env python3
"""Compare the policies' schedules of small random graphs with optimal ones.

    python python/compare_optimal.py --graphs 60 --operators 12 --veus 2,3

Plans are simulated with costs of synchronising, but without contention and caches, for which no
optimum is known. Where the search ends before it has proved an optimum, the gap is to a lower bound
(the longest path, or all work over the vEUs), and so at most what is printed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median

import click
import numpy as np
from bench.optimal import best_makespan, small_graph
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tvm_rammer.machine import VDevice
from tvm_rammer.schedule import POLICIES, CostModel, bounds, plan, simulate
from tvm_rammer.testing.random_graphs import SHAPES

#: Nothing but tiles, waits and the launch takes time.
COSTS = CostModel(
    point_to_point=1e-7,
    barrier=3e-7,
    launch=1e-6,
    bandwidth=1e18,
    memory_bandwidth=1e18,
    far_byte=0.0,
)


@click.command()
@click.option("--graphs", default=60, show_default=True, help="Graphs per number of vEUs.")
@click.option("--operators", default=12, show_default=True, help="Most operators of a graph.")
@click.option("--veus", default="2,3", show_default=True, help="Numbers of vEUs.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(graphs: int, operators: int, veus: str, seed: int, json_path: Path | None) -> None:
    """State how much longer than the optimum the plans of each policy take."""
    console = Console()
    found: dict[int, dict[str, list[float]]] = {}
    for num_veus in map(int, veus.split(",")):
        gaps, unproved = compare(graphs, operators, num_veus, seed, console)
        found[num_veus] = gaps
        console.print(_table(f"{num_veus} vEUs, {graphs} graphs, {unproved} not proved", gaps))
    if json_path:
        json_path.write_text(json.dumps(found, indent=1))


def compare(
    graphs: int, operators: int, num_veus: int, seed: int, console: Console
) -> tuple[dict[str, list[float]], int]:
    """Gaps by policy (``best``: the best of all), and how many optima are not proved."""
    gaps: dict[str, list[float]] = defaultdict(list)
    unproved = 0
    device = VDevice("any", num_veus=num_veus)
    for number in track(range(graphs), f"{num_veus} vEUs", console=console, transient=True):
        shape = SHAPES[number % len(SHAPES)]
        rng = np.random.default_rng([seed, number])
        graph = small_graph(rng, shape, int(rng.integers(4, operators + 1)))
        times = {
            policy: simulate(plan(graph, device, policy, COSTS), COSTS).makespan
            for policy in POLICIES
        }
        times["best"] = min(times.values())
        optimum = best_makespan(graph, num_veus, COSTS, times["best"])
        least = optimum.makespan
        if not optimum.proved:
            unproved += 1
            least = COSTS.launch + bounds(plan(graph, device, "sequential", COSTS)).makespan
        for policy, seconds in times.items():
            gaps[policy].append(seconds / least - 1)
    return dict(gaps), unproved


def _table(title: str, gaps: dict[str, list[float]]) -> Table:
    table = Table(title=title)
    table.add_column("policy")
    for heading in ("median gap", "90 %", "largest", "optimal"):
        table.add_column(heading, justify="right")
    for policy, mine in gaps.items():
        exact = sum(gap < 1e-6 for gap in mine) / len(mine)
        figures = (median(mine), float(np.quantile(mine, 0.9)), max(mine), exact)
        table.add_row(policy, *[f"{figure:.1%}" for figure in figures])
    return table


if __name__ == "__main__":
    main()
