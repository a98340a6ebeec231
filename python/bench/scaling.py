"""Simulated makespans of every policy on more vEUs than this machine may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

import onnx

from bench.findings import FindingsFile
from bench.graphs import graphs_by_veus
from tvm_rammer.backend import vdevice_for
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.described_machine import DescribedMachine
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.schedule import AUTO, CostModel, auto, bounds, policies

#: Makespans in seconds by policy, and what no plan of the same kernels can beat: ``BOUND``, the
#: largest of the other three region by region, but never above the plan of ``auto``.
Makespans = dict[str, float]
BOUND = "bound"
CRITICAL_PATH, WORK, BANDWIDTH = "critical path", "work", "bandwidth"
BOUNDS = (CRITICAL_PATH, WORK, BANDWIDTH)


@dataclass(frozen=True)
class Scaling:
    """A model on devices of several sizes, simulated with the measured costs of its kernels.

    Attributes
    ----------
    operators : int
        Of all regions, as they are for the fewest vEUs.
    choices : int
        Operators with more than one rKernel.
    makespans, fast : mapping of str to Makespans
        By number of vEUs: with all rKernels, and with the fast ones alone (empty if there are no
        others).
    """

    operators: int
    choices: int
    makespans: dict[str, Makespans]
    fast: dict[str, Makespans]


#: What compare_policies.py writes.
SCALINGS = FindingsFile("compare_policies.py", Scaling)


def scaling(
    model: onnx.ModelProto, counts: Sequence[int], described: DescribedMachine | None = None
) -> Scaling:
    """Simulate a model on so many vEUs, with the kernels of this machine.

    Products are merged as is best for each number of them.

    Parameters
    ----------
    model : onnx.ModelProto
    counts : sequence of int
    described : DescribedMachine, optional
        What lies how far from what; this machine's if not given, as if all its cores were of one
        complex.
    """
    graphs = graphs_by_veus(model, counts)
    known = vdevice_for() if described is None else described.applied_to(vdevice_for())
    few = graphs[min(counts)]
    choices = count_choices(few)
    return Scaling(
        sum(len(graph.operators) for graph in few),
        choices,
        {str(count): makespans(own, known, count) for count, own in graphs.items()},
        {
            str(count): makespans(fast_only(own), known, count)
            for count, own in (graphs.items() if choices else ())
        },
    )


def makespans(graphs: Sequence[OperatorGraph], known: VDevice, num_veus: int) -> Makespans:
    """Sums over the regions of a model, planned and simulated with the costs of ``known``.

    A policy that is left out for a graph counts as ``sequential`` there.
    """
    costs = CostModel.of(known)
    usable = policies()
    sums: Makespans = dict.fromkeys((AUTO, *usable, BOUND, *BOUNDS), 0.0)
    for graph in graphs:
        chosen, decision = auto(graph, num_veus, costs, usable)
        predicted = {contender.name: contender.predicted for contender in decision.contenders}
        sums[AUTO] += chosen.predicted
        for policy in usable:
            sums[policy] += predicted.get(policy, predicted["sequential"])
        least = bounds(chosen.program, costs)
        # Tasks are slowed down by what runs when they start: a simulated plan may draw more from
        # memory than there is, and what it reaches is no proof that others cannot.
        sums[BOUND] += min(least.makespan + costs.launch, chosen.predicted)
        for name, seconds in zip(
            BOUNDS, (least.critical_path, least.work, least.traffic), strict=True
        ):
            sums[name] += seconds + costs.launch
    return sums


def fast_only(graphs: Sequence[OperatorGraph]) -> list[OperatorGraph]:
    """The graphs with the fast rKernel of every operator alone."""
    return [
        replace(
            graph,
            operators=tuple(replace(op, candidates=op.candidates[:1]) for op in graph.operators),
        )
        for graph in graphs
    ]


def count_choices(graphs: Sequence[OperatorGraph]) -> int:
    """Operators that have more than one rKernel to choose from."""
    return sum(len(op.candidates) > 1 for graph in graphs for op in graph.operators)


def speed_up(found: Makespans, policy: str = AUTO) -> float:
    """How many times faster a policy is than ``sequential``."""
    return found["sequential"] / found[policy] if found[policy] else 1.0


def mean_speed_up(found: Sequence[Makespans], policy: str = AUTO) -> float:
    """Geometric mean over models."""
    return geometric_mean([speed_up(one, policy) for one in found])
