"""Plans within a limit of memory: where a policy's plan takes too much, it gets fewer vEUs.

What runs together is alive together, so a plan for fewer vEUs needs less memory; on one vEU a
policy runs one operator after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.schedule.auto import BASELINE
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.fewer_veus import halvings, with_idle
from tvm_rammer.schedule.memory import plan_memory
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.policy import Policy
from tvm_rammer.schedule.synchronise import synchronise


@dataclass(frozen=True)
class Planned:
    """The ``place`` of a policy that has planned its graph already."""

    placement: Placement

    def __call__(self, graph: OperatorGraph, num_veus: int, costs: CostModel) -> Placement:
        return self.placement


def policies_within(
    max_arena_bytes: int,
    graph: OperatorGraph,
    num_veus: int,
    costs: CostModel,
    policies: Mapping[str, Policy],
) -> dict[str, Policy]:
    """The policies whose plans fit, each on as many vEUs as fit; they know the plans by now.

    Parameters
    ----------
    max_arena_bytes : int
        For the intermediate results of the graph.
    graph, num_veus, costs
        What is planned, and for what.
    policies : mapping of str to Policy
        Those that may be used.

    Raises
    ------
    PlanError
        If no plan fits; it states the least that one needs.
    """
    found: dict[str, Policy] = {}
    least: dict[str, int] = {}
    for name, policy in policies.items():
        for fewer in (num_veus, *halvings(num_veus)):
            placement = with_idle(policy(graph, fewer, costs), num_veus)
            program = plan_memory(synchronise(graph, placement))
            least[name] = min(program.arena_bytes, least.get(name, program.arena_bytes))
            if program.arena_bytes <= max_arena_bytes:
                found[name] = replace(policy, place=Planned(placement), final=True)
                break
    if not found:
        name = min(least, key=lambda key: least[key])
        raise PlanError(
            f"{graph.name}: max_arena_bytes is {max_arena_bytes:,}, and the smallest plan needs "
            f"{least[name]:,} bytes ({name}): allow that much, or split the model"
        )
    # The selector compares with this one; on a graph where it needs more than others, they stand
    # in for it.
    if BASELINE in policies:
        found.setdefault(BASELINE, next(iter(found.values())))
    return found
