#!/usr/bin/env python3
"""Simulate what it gains that ``estf`` heeds what vEUs draw from the caches that they share.

    python python/ablate_contention.py --json docs/results/contention.json
    python python/ablate_contention.py --models gru_8x8x256 --machines graviton3 --veus 16

Whole operators are scheduled with and without what other vEUs draw, and by ``estf``, which takes
the shorter plan, for this machine (all vEUs in one complex) and for described ones. With --json
what is in the file is not done again, and a page is written beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import geometric_mean

import click
from bench.graphs import operator_graphs
from bench.machine_option import described_veus
from bench.markdown import table, whole_page
from rich.console import Console

from tvm_rammer.backend import vdevice_for
from tvm_rammer.machine.described_machine import described_machine, described_machines
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.schedule import CostModel, Placement, estf, simulate, synchronise
from tvm_rammer.schedule.estf import place_whole
from tvm_rammer.schedule.list_schedule import ListSchedule
from tvm_rammer.testing.models import get_model

#: The machine that is at hand, as if all vEUs were of one complex.
HERE = "here"
_MODELS = "recommender,mixture_of_experts,gru_8x8x256,lstm_8x8x256,squeezenet,shufflenet"
_COLUMNS = ("model", "machine", "vEUs", "heedless, us", "heeding, us", "estf, us", "gain")
_PAGE = """\
Simulated plans of `estf` in microseconds, kernels with the costs that they have here: scheduled \
as if no vEU drew anything from the last-level cache of its complex (heedless), with that \
(heeding), and the policy as it is, which takes the shorter one and shares tiles where that pays. \
The gain is that of knowing both over the heedless plan alone."""


@dataclass(frozen=True)
class Ablation:
    """Simulated seconds of a model's plans."""

    model: str
    machine: str
    veus: int
    heedless: float
    heeding: float
    estf: float

    @property
    def gain(self) -> float:
        """How many times longer than the shorter plan the heedless one is."""
        return self.heedless / min(self.heeding, self.heedless)

    def row(self) -> tuple[str, ...]:
        """As in the table."""
        times = (f"{seconds * 1e6:.1f}" for seconds in (self.heedless, self.heeding, self.estf))
        return (self.model, self.machine, str(self.veus), *times, f"{self.gain:.3f}x")


@click.command()
@click.option("--models", default=_MODELS, show_default=True, help="Names, separated by commas.")
@click.option("--machines", default=",".join((HERE, *described_machines())), show_default=True)
@click.option("--veus", default="16,64", show_default=True, help="Numbers of vEUs.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, machines: str, veus: str, json_path: Path | None) -> None:
    """Simulate what heeding contention gains."""
    console, found = Console(), _read(json_path)
    known = {(each.model, each.machine, each.veus) for each in found}
    for model in models.split(","):
        graphs: list[OperatorGraph] = []
        for machine in machines.split(","):
            for count in map(int, veus.split(",")):
                costs = _costs(machine, count)
                if costs is None or (model, machine, count) in known:
                    continue
                graphs = graphs or operator_graphs(get_model(model).build(), measured=True)
                found.append(ablation(model, machine, count, graphs, costs))
                console.print(*found[-1].row())
                if json_path:
                    _write(json_path, found)


def ablation(
    model: str, machine: str, veus: int, graphs: Sequence[OperatorGraph], costs: CostModel
) -> Ablation:
    """Plan the graphs of a model in the three ways."""
    rate = costs.bandwidth * costs.complexes(veus)

    def seconds(graph: OperatorGraph, placement: Placement) -> float:
        return simulate(synchronise(graph, placement), costs).makespan

    heedless, heeding = (
        sum(seconds(g, place_whole(ListSchedule(g, veus, costs), limit)[0]) for g in graphs)
        for limit in (inf, rate)
    )
    chosen = sum(seconds(graph, estf(graph, veus, costs)) for graph in graphs)
    return Ablation(model, machine, veus, heedless, heeding, chosen)


def _costs(machine: str, veus: int) -> CostModel | None:
    """The costs of a machine; None if it has fewer hardware threads."""
    if machine == HERE:
        return CostModel.of(vdevice_for())
    described = described_machine(machine)
    if described.threads < veus:
        return None
    return CostModel.of(described_veus(described, vdevice_for(), veus))


def _read(path: Path | None) -> list[Ablation]:
    if path is None or not path.exists():
        return []
    return [Ablation(**each) for each in json.loads(path.read_text())]


def _write(path: Path, found: Sequence[Ablation]) -> None:
    """The file, and the page beside it."""
    path.write_text(json.dumps([asdict(each) for each in found], indent=0) + "\n")
    gains = [each.gain for each in found]
    losses = [each.heeding / min(each.heeding, each.heedless) for each in found]
    without, alone = (1 - 1 / geometric_mean(each) for each in (gains, losses))
    summary = (
        f"Heeding alone gains up to {max(gains) - 1:.1%} and loses up to {max(losses) - 1:.1%}. "
        f"The shorter of both plans takes {without:.1%} less than the heedless one and {alone:.1%} "
        "less than the heeding one (geometric means)."
    )
    command = f"python python/ablate_contention.py --json {path.as_posix()}"
    parts = ["# What heeding contention gains", _PAGE, f"```text\n{command}\n```", summary]
    parts.append(table(_COLUMNS, [each.row() for each in found]))
    path.with_suffix(".md").write_text(whole_page(parts))


if __name__ == "__main__":
    main()
