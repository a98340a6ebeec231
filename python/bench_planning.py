#!/usr/bin/env python3
"""Time every policy on the operator graphs of models: CPU seconds until a plan is proved safe.

    python python/bench_planning.py --models lstm_10x100x256,inception_v3,randwire --veus 2
    python python/bench_planning.py --models ladder:8000,mixed:8000,wide:8000 --veus 2,8 \
        --policies sequential,wavefront,estf,locality

Kernels cost what the model of costs says; nothing is compiled or measured.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path

import click
from bench.graphs import operator_graphs
from bench.machine_option import described_veus, machine_option
from fuzzing.random_graphs import SHAPES, random_graph
from rich.console import Console
from rich.table import Table

from tvm_rammer.machine import VDevice
from tvm_rammer.machine.described_machine import DescribedMachine
from tvm_rammer.no_collection import no_collection
from tvm_rammer.options import Options
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.schedule import POLICIES, CostModel, plan_memory, policies, simulate, synchronise
from tvm_rammer.testing.models import get_model

#: Those that the literature reports search times for, and the zoo's longest.
_MODELS = "lstm_10x100x256,inception_v3,nasnet_large,randwire"


@dataclass(frozen=True)
class Planning:
    """CPU seconds of the steps of one plan, and what it promises."""

    model: str
    operators: int
    veus: int
    policy: str
    place: float
    synchronise: float
    memory: float
    verify: float
    simulate: float
    makespan: float

    @property
    def total(self) -> float:
        """CPU seconds until the plan is proved safe."""
        return self.place + self.synchronise + self.memory + self.verify


@click.command()
@click.option(
    "--models",
    default=_MODELS,
    show_default=True,
    help="Names, separated by commas; SHAPE:OPERATORS is a random graph.",
)
@click.option("--policies", default=",".join(POLICIES), show_default=True)
@click.option("--veus", default="2", show_default=True, help="Counts, separated by commas.")
@click.option("--tiny", is_flag=True, help="Models at the reduced sizes of the tests.")
@machine_option
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    models: str,
    policies: str,
    veus: str,
    tiny: bool,
    described: DescribedMachine | None,
    json_path: Path | None,
) -> None:
    """Time policies on models."""
    console = Console()
    found: list[Planning] = []
    for name, count in product(models.split(","), map(int, veus.split(","))):
        options = Options(num_veus=None if described else count, oversubscribe=True)
        vdevice = options.resolve().vdevice
        if described is not None:
            vdevice = described_veus(described, vdevice, count)
        with console.status(f"{name} ..."):
            graphs = _graphs(name, tiny, options)
        for graph in graphs:
            mine = [time_policy(name, graph, vdevice, policy) for policy in policies.split(",")]
            title = f"{name}: {len(graph.operators):,} operators on {count} vEUs"
            console.print(_table(title, mine))
            found += mine
    if json_path:
        json_path.write_text(json.dumps([asdict(one) for one in found], indent=1))


def _graphs(name: str, tiny: bool, options: Options) -> list[OperatorGraph]:
    """The graphs of a model, or a random one."""
    shape, _, operators = name.partition(":")
    if shape in SHAPES and operators.isdigit():
        return [random_graph(0, shape, int(operators))]
    info = get_model(name)
    return operator_graphs(info.tiny() if tiny else info.build(), options)


@no_collection()
def time_policy(name: str, graph: OperatorGraph, vdevice: VDevice, policy: str) -> Planning:
    """Plan a graph step by step."""
    costs = CostModel.of(vdevice)
    clock = [time.process_time()]
    placement = policies()[policy](graph, vdevice.num_veus, costs)
    clock.append(time.process_time())
    waiting = synchronise(graph, placement)
    clock.append(time.process_time())
    program = plan_memory(waiting)
    clock.append(time.process_time())
    verify(program)
    clock.append(time.process_time())
    makespan = simulate(program, costs).makespan
    clock.append(time.process_time())
    steps = [stop - start for start, stop in pairwise(clock)]
    return Planning(name, len(graph.operators), vdevice.num_veus, policy, *steps, makespan)


def _table(title: str, plans: list[Planning]) -> Table:
    table = Table(title=title)
    table.add_column("policy")
    for heading in ("place", "synchronise", "memory", "verify", "total s", "simulate", "plan ms"):
        table.add_column(heading, justify="right")
    for one in plans:
        steps = (one.place, one.synchronise, one.memory, one.verify, one.total, one.simulate)
        table.add_row(one.policy, *[f"{s:.2f}" for s in steps], f"{one.makespan * 1e3:.3f}")
    return table


if __name__ == "__main__":
    main()
