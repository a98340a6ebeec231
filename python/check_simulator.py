#!/usr/bin/env python3
"""Compare simulated with measured times of plans on this machine.

    python python/check_simulator.py --models lstm_8x8x256,inception_v1 --policies sequential,estf

Every plan is verified and run through the kernel that a build would make; the plans of a model take
turns. A machine that others share changes its speed within minutes: what synchronising, memory and
kernels cost is measured just before a model's plans and again after them, and a plan is simulated
with the kernels of both. Where they are not the same any more, or cores turn out to be threads of
one core, the model is measured again, a few times at most: a plan whose machine never kept still is
counted and marked.
Other work on the machine makes plans slower than any simulation: the load is printed too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

import click
from bench.machine_state import measure_state
from bench.own_cores import OwnCores
from rich.console import Console
from rich.status import Status
from rich.table import Table

from tvm_rammer.backend.cpu.timing.measure_plans import measure_plans
from tvm_rammer.frontend import load_model
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Options
from tvm_rammer.region.compiler import Graphs, RegionCompiler, signature_of
from tvm_rammer.region.operator_graph import RegionGraph
from tvm_rammer.rprogram import RProgram
from tvm_rammer.schedule import POLICIES, CostModel, choices, plan, simulate
from tvm_rammer.testing.models import MODELS, get_model
from tvm_rammer.transform.pipeline import partition_module

#: How often a model is measured at most, and how long to wait for cores of one's own.
_ATTEMPTS = 5
_PATIENCE_SECONDS = 20.0
#: Sessions of measuring plans, each of one to two seconds.
_SESSIONS = 4
#: A machine keeps still if its kernels after the plans take at most so many times what they took
#: before, or the other way round.
_SAME_KERNELS = 1.05

Measure = Callable[[], list[list[float]]]


@dataclass(frozen=True)
class Sample:
    """One plan of one region, in seconds.

    Attributes
    ----------
    simulated : float
        With what kernels took before and after the plans, in the mean.
    drift : float
        What the simulation with those after takes, over that with those before.
    fastest : float
        The best round; ``measured`` is the median.
    settled : bool
        Whether the machine was the same before and after.
    """

    model: str
    region: str
    policy: str
    simulated: float
    drift: float
    measured: float
    fastest: float
    settled: bool = False

    @property
    def error(self) -> float:
        """How far the simulation is off, relative to the measured median."""
        return self.simulated / self.measured - 1

    @property
    def same_kernels(self) -> bool:
        """Whether kernels took the same before and after."""
        return 1 / _SAME_KERNELS <= self.drift <= _SAME_KERNELS


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
    if unknown := sorted({*wanted} - {*choices()}):
        raise click.BadParameter(f"there is no policy {unknown[0]!r}")
    samples: list[Sample] = []
    cores = OwnCores()
    for name in models.split(",") if models else MODELS:
        with console.status(f"{name} ...") as status:
            mine = settled(name, wanted, veus, tiny, cores, status)
        console.print(_table(name, mine))
        samples += mine
    if samples:
        error = median(abs(sample.error) for sample in samples)
        still = sum(sample.settled for sample in samples)
        best = median(abs(sample.simulated / sample.fastest - 1) for sample in samples)
        console.print(
            f"median error {error:.1%} over {len(samples)} plans ({best:.1%} against the fastest "
            f"round), the machine was settled for {still} of them; "
            f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        )
    if json_path:
        json_path.write_text(json.dumps([asdict(sample) for sample in samples], indent=1))


def settled(
    name: str, policies: list[str], veus: int | None, tiny: bool, cores: OwnCores, status: Status
) -> list[Sample]:
    """Compare until the machine keeps still meanwhile, or the last of a few attempts."""
    info = get_model(name)
    loaded = load_model(info.tiny() if tiny else info.build())
    goal = Options(num_veus=veus).resolve()
    partitions, device = partition_module(loaded.module, goal), goal.vdevice
    modelled = partitions.compiler.graphs(partitions.merged_for(device))
    samples: list[Sample] = []
    for attempt in range(_ATTEMPTS):
        status.update(f"{name}: attempt {attempt + 1} of {_ATTEMPTS} ...")
        cores.wait(_PATIENCE_SECONDS)
        calibrated, before = measure_state(device, cores)
        samples = compare(name, partitions.compiler, modelled, policies, calibrated, cores)
        _, after = measure_state(device, cores)
        same_kernels = all(sample.same_kernels for sample in samples)
        if before.own_cores and before.like(after) and same_kernels:
            return [replace(sample, settled=True) for sample in samples]
    return samples


def compare(
    name: str,
    compiler: RegionCompiler,
    modelled: Graphs,
    policies: list[str],
    vdevice: VDevice,
    cores: OwnCores,
) -> list[Sample]:
    """Simulate and measure plans of all regions of a model."""
    costs = CostModel.of(vdevice)
    before = compiler.measured(modelled, refresh=True)
    signatures = [signature_of(graph.graph) for graph in before.values()]
    kernels = compiler.module(tuple(signatures))
    ids = compiler.kernels.ids
    measured: list[tuple[list[RProgram], list[list[float]]]] = []
    for graph, signature in zip(before.values(), signatures, strict=True):
        programs = [plan(graph.graph, vdevice, policy) for policy in policies]
        runs = [(program, False) for program in programs]
        measure = partial(measure_plans, kernels, signature, ids, runs, graph.constants)
        measured.append((programs, undisturbed(measure, cores)))
    after = compiler.measured(modelled, refresh=True)
    found: list[Sample] = []
    for graph, (programs, times) in zip(after.values(), measured, strict=True):
        for policy, program, mine in zip(policies, programs, times, strict=True):
            first, last = (
                simulate(each, costs).makespan for each in (program, _repriced(program, graph))
            )
            mean, drift = (first + last) / 2, last / first
            found.append(Sample(name, program.name, policy, mean, drift, median(mine), min(mine)))
    return found


def _repriced(program: RProgram, region: RegionGraph) -> RProgram:
    """A plan with its kernels as a region has them."""
    known = {
        kernel.name: kernel for operator in region.graph.operators for kernel in operator.candidates
    }
    return replace(program, kernels=tuple(known[kernel.name] for kernel in program.kernels))


def undisturbed(measure: Measure, cores: OwnCores) -> list[list[float]]:
    """The rounds of those of a few sessions in which every core was our own; all if there are none.

    A host that moves our cores does so within seconds.
    """
    sessions: list[list[list[float]]] = []
    good: list[list[list[float]]] = []
    for _ in range(_SESSIONS):
        ours = cores.are_ours()
        sessions.append(measure())
        if ours and cores.are_ours():
            good.append(sessions[-1])
    return [[*chain(*rounds)] for rounds in zip(*(good or sessions), strict=True)]


def _table(name: str, samples: list[Sample]) -> Table:
    table = Table(title=name)
    for heading in ("region", "policy"):
        table.add_column(heading)
    for heading in ("simulated us", "drift", "measured us", "fastest us", "error", "settled"):
        table.add_column(heading, justify="right")
    for sample in samples:
        simulated, measured, fastest = (
            f"{seconds * 1e6:,.1f}"
            for seconds in (sample.simulated, sample.measured, sample.fastest)
        )
        drift, error = f"{sample.drift - 1:+.1%}", f"{sample.error:+.1%}"
        still = "yes" if sample.settled else "no"
        table.add_row(
            sample.region, sample.policy, simulated, drift, measured, fastest, error, still
        )
    return table


if __name__ == "__main__":
    main()
