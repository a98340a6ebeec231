"""Simulated makespans of every policy on more vEUs than this machine may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean

from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.schedule import AUTO, POLICIES, CostModel, auto, bounds
from tvm_rammer.vdevice import VDevice

#: Makespans in seconds by policy; ``BOUND`` is one that no plan of the same kernels can beat.
Makespans = dict[str, float]
BOUND = "bound"


def makespans(graphs: Sequence[OperatorGraph], known: VDevice, num_veus: int) -> Makespans:
    """Sums over the regions of a model, planned and simulated with the costs of ``known``.

    A policy that is left out for a graph counts as ``sequential`` there.
    """
    costs = CostModel.of(known)
    vdevice = VDevice(known.name, num_veus=num_veus, l2_bytes=known.l2_bytes)
    sums: Makespans = dict.fromkeys((AUTO, *POLICIES, BOUND), 0.0)
    for graph in graphs:
        chosen, decision = auto(graph, vdevice, costs, POLICIES)
        predicted = {contender.name: contender.predicted for contender in decision.contenders}
        sums[AUTO] += chosen.predicted
        for policy in POLICIES:
            sums[policy] += predicted.get(policy, predicted["sequential"])
        sums[BOUND] += bounds(chosen.program).makespan + costs.launch
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
