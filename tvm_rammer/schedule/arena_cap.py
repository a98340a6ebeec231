"""Plans within a limit of memory: where a policy's plan takes too much, it gets fewer vEUs.

What runs together is alive together, so a plan for fewer vEUs needs less memory; on one vEU a
policy runs one operator after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tvm_rammer.errors import PlanError
from tvm_rammer.machine.vdevice import MemoryCosts
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.schedule.auto import BASELINE, Policy
from tvm_rammer.schedule.costs import CostModel, Device
from tvm_rammer.schedule.memory import plan_memory
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.synchronise import synchronise


@dataclass(frozen=True)
class PartOfDevice:
    """A device of which only some vEUs are used."""

    num_veus: int
    point_to_point_seconds: float
    barrier_seconds: float
    launch_seconds: float
    l2_bytes: int
    l3_bytes: int
    memory: MemoryCosts

    @classmethod
    def of(cls, vdevice: Device, num_veus: int) -> PartOfDevice:
        """The first ``num_veus`` vEUs of ``vdevice``."""
        return cls(
            num_veus,
            vdevice.point_to_point_seconds,
            vdevice.barrier_seconds,
            vdevice.launch_seconds,
            vdevice.l2_bytes,
            vdevice.l3_bytes,
            vdevice.memory,
        )


@dataclass(frozen=True)
class OnFewer:
    """A policy that uses the first ``num_veus`` vEUs of a device."""

    policy: Policy
    num_veus: int

    def __call__(self, graph: OperatorGraph, vdevice: Device, costs: CostModel) -> Placement:
        placement = self.policy(graph, PartOfDevice.of(vdevice, self.num_veus), costs)
        idle = ((),) * (vdevice.num_veus - len(placement.veus))
        return replace(placement, veus=(*placement.veus, *idle))


@dataclass(frozen=True)
class Planned:
    """A policy that has planned its graph already."""

    placement: Placement

    def __call__(self, graph: OperatorGraph, vdevice: Device, costs: CostModel) -> Placement:
        return self.placement


def policies_within(
    max_arena_bytes: int,
    graph: OperatorGraph,
    vdevice: Device,
    costs: CostModel,
    policies: Mapping[str, Policy],
) -> dict[str, Policy]:
    """The policies whose plans fit, each on as many vEUs as fit; they know the plans by now.

    Parameters
    ----------
    max_arena_bytes : int
        For the intermediate results of the graph.
    graph, vdevice, costs
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
        for num_veus in _halvings(vdevice.num_veus):
            whole = num_veus == vdevice.num_veus
            limited: Policy = policy if whole else OnFewer(policy, num_veus)
            placement = limited(graph, vdevice, costs)
            program = plan_memory(synchronise(graph, placement), max_arena_bytes)
            least[name] = min(program.arena_bytes, least.get(name, program.arena_bytes))
            if program.arena_bytes <= max_arena_bytes:
                found[name] = Planned(placement)
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


def _halvings(number: int) -> Iterator[int]:
    while number > 1:
        yield number
        number //= 2
    yield 1
