#!/usr/bin/env python3
"""Compare the policies' schedules of small random graphs with optimal ones.

    python python/compare_optimal.py --json docs/results/optimal.json

Plans are simulated with the costs of synchronising and of data in the caches of other vEUs, but
without contention and caches that overflow, for which no optimum is known. Where the search ends
before it has proved an optimum, the gap is to a lower bound (the longest path, or all work over the
vEUs), and so at most what is printed. With --json what is in the file is not done again, and a page
is written beside it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click
import numpy as np
from bench.console_table import console_table
from bench.markdown import table, whole_page
from bench.optimal import best_makespan, small_graph
from fuzzing.random_graphs import SHAPES
from rich.console import Console
from rich.progress import track

from tvm_rammer.machine import VDevice
from tvm_rammer.machine.vdevice import DEFAULT_MEMORY
from tvm_rammer.schedule import POLICIES, CostModel, plan, simulate
from tvm_rammer.typed_json import read_as

#: Nothing but tiles, waits, transfers and the launch takes time.
COSTS = CostModel(
    point_to_point=1e-7,
    barrier=3e-7,
    launch=1e-6,
    bandwidth=1e18,
    memory_bandwidth=1e18,
    far_byte=0.0,
    l2_bytes=1 << 30,
    transfer=DEFAULT_MEMORY.transfer,
    transfer_byte=DEFAULT_MEMORY.transfer_byte,
)
BEST = "best of all"
_COLUMNS = ("policy", "median", "90 %", "largest", "optimal")
_PAGE = """\
Simulated schedules of random graphs of 4 to {operators} operators ({shapes}), each of 1 to 3 \
tiles of 1 to 10 us that write 4 to 64 KiB and read all of what other operators wrote, or the part \
in the same place, with or without what lies beside it. How much longer than the best schedule \
that branch and bound found those of each policy take. What one vEU reads that another one wrote \
costs {transfer:.2g} us and {kib:.2g} us for each KiB, a signal {signal:.2g} us. Where the search \
ended at {budget:,} partial schedules without a proof, schedules are compared with a lower bound \
(the longest path, or all work over the vEUs): they are nearer to the optimum than stated."""


@dataclass(frozen=True)
class Gaps:
    """How much longer than the optimum the plans of a graph take, by policy (0.1: 10 %).

    ``proved`` is False if that is no optimum, but a lower bound.
    """

    proved: bool
    by_policy: dict[str, float]


#: By number of vEUs, then by number of the graph.
Found = dict[str, dict[str, Gaps]]


@click.command()
@click.option("--graphs", default=60, show_default=True, help="Graphs per number of vEUs.")
@click.option("--operators", default=6, show_default=True, help="Most operators of a graph.")
@click.option("--veus", default="2,4", show_default=True, help="Numbers of vEUs.")
@click.option("--budget", default=20_000, show_default=True, help="Partial schedules to look at.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    graphs: int, operators: int, veus: str, budget: int, seed: int, json_path: Path | None
) -> None:
    """State how much longer than the optimum the plans of each policy take."""
    console = Console()
    setting = {"operators": operators, "budget": budget, "seed": seed}
    found = _read(json_path, setting)
    for count in map(int, veus.split(",")):
        mine = found.setdefault(str(count), {})
        numbers = [number for number in range(graphs) if str(number) not in mine]
        for number in track(numbers, f"{count} vEUs", console=console, transient=True):
            mine[str(number)] = compare(number, operators, count, budget, seed)
            if json_path:
                _write(json_path, setting, found)
    for count, gaps in found.items():
        console.print(console_table(_title(count, gaps), _COLUMNS, _rows(gaps)))


def compare(number: int, operators: int, num_veus: int, budget: int, seed: int) -> Gaps:
    """The gaps of one graph."""
    rng = np.random.default_rng([seed, number])
    shape = SHAPES[number % len(SHAPES)]
    graph = small_graph(rng, shape, int(rng.integers(4, operators + 1)))
    device = VDevice("any", num_veus=num_veus)
    times = {
        policy: simulate(plan(graph, device, policy, COSTS), COSTS).makespan for policy in POLICIES
    }
    times[BEST] = min(times.values())
    optimum = best_makespan(graph, num_veus, COSTS, times[BEST], budget)
    gaps = {name: seconds / optimum.least - 1 for name, seconds in times.items()}
    return Gaps(optimum.proved, gaps)


def _read(path: Path | None, setting: dict[str, int]) -> Found:
    """What an earlier run found under the same setting."""
    if path is None or not path.exists():
        return {}
    data = json.loads(path.read_text())
    if data["setting"] != setting:
        raise click.ClickException(
            f"{path} was made with {data['setting']}, not {setting}; give another file"
        )
    found: Found = read_as(Found, data["found"])
    return found


def _write(path: Path, setting: dict[str, int], found: Found) -> None:
    """The file, and the page beside it."""
    plain = {
        count: {number: asdict(each) for number, each in mine.items()}
        for count, mine in found.items()
    }
    path.write_text(json.dumps({"setting": setting, "found": plain}, indent=0) + "\n")
    text = _PAGE.format(
        operators=setting["operators"],
        shapes=", ".join(SHAPES),
        transfer=COSTS.transfer * 1e6,
        kib=COSTS.transfer_byte * 1024e6,
        signal=COSTS.point_to_point * 1e6,
        budget=setting["budget"],
    )
    command = f"python python/compare_optimal.py --json {path.as_posix()}"
    parts = ["# Distance to optimal schedules", text, f"```text\n{command}\n```"]
    for count, gaps in found.items():
        parts += [f"## {_title(count, gaps)}", table(_COLUMNS, _rows(gaps))]
    path.with_suffix(".md").write_text(whole_page(parts))


def _title(count: str, gaps: dict[str, Gaps]) -> str:
    unproved = sum(not each.proved for each in gaps.values())
    return f"{count} vEUs, {len(gaps)} graphs, {unproved} not proved"


def _rows(gaps: dict[str, Gaps]) -> list[list[str]]:
    found = []
    for policy in next(iter(gaps.values())).by_policy:
        mine = [each.by_policy[policy] for each in gaps.values()]
        exact = sum(gap < 1e-6 for gap in mine) / len(mine)
        figures = (median(mine), float(np.quantile(mine, 0.9)), max(mine), exact)
        found.append([policy, *[f"{figure:.1%}" for figure in figures]])
    return found


if __name__ == "__main__":
    main()
