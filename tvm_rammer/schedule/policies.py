"""The policies by name, and the way from an operator graph to a verified rProgram."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_rammer.errors import InputError
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.schedule.arena_cap import policies_within
from tvm_rammer.schedule.auto import BASELINE, Policy, auto
from tvm_rammer.schedule.check_graph import check_graph
from tvm_rammer.schedule.costs import CostModel, Device
from tvm_rammer.schedule.estf import estf
from tvm_rammer.schedule.ios import ios
from tvm_rammer.schedule.locality import locality
from tvm_rammer.schedule.memory import plan_memory
from tvm_rammer.schedule.sequential import sequential
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.wavefront import wavefront

POLICIES: dict[str, Policy] = {
    "sequential": sequential,
    "wavefront": wavefront,
    "estf": estf,
    "ios": ios,
    "locality": locality,
}


#: What a user may ask for: a policy, or the selector above them.
AUTO = "auto"
CHOICES = (AUTO, *POLICIES)


def plan(
    graph: OperatorGraph,
    vdevice: Device,
    policy: str = AUTO,
    costs: CostModel | None = None,
    max_arena_bytes: int | None = None,
) -> RProgram:
    """Plan an operator graph for a device.

    Parameters
    ----------
    graph : OperatorGraph
    vdevice : Device
        States the number of vEUs, and the costs unless ``costs`` is given.
    policy : str
        A name in :data:`CHOICES`; ``"auto"`` decides by simulation here.
    costs : CostModel, optional
        What synchronising and launching cost.
    max_arena_bytes : int, optional
        Most memory for intermediate results: a plan that needs more is made for fewer vEUs.

    Returns
    -------
    RProgram
        With waits and offsets, proved safe.

    Raises
    ------
    InputError
        If the policy is unknown, a cost is no finite number from 0, or the device has no vEU.
    PlanError
        If no plan fits into ``max_arena_bytes``.
    """
    check_policy(policy)
    check_graph(graph)
    if vdevice.num_veus < 1:
        raise InputError(f"num_veus is {vdevice.num_veus}; a plan needs at least one vEU")
    known = costs or CostModel.of(vdevice)
    policies: Mapping[str, Policy] = POLICIES
    if policy != AUTO:
        # A plan that is too large for any number of vEUs falls back on the baseline.
        policies = {policy: POLICIES[policy], BASELINE: POLICIES[BASELINE]}
    if max_arena_bytes is not None:
        policies = policies_within(max_arena_bytes, graph, vdevice, known, policies)
    if policy == AUTO:
        return finish(auto(graph, vdevice, known, policies)[0].program, max_arena_bytes)
    chosen = policies.get(policy, policies[BASELINE])
    return finish(synchronise(graph, chosen(graph, vdevice, known)), max_arena_bytes)


def check_policy(policy: str) -> None:
    """Raise an InputError unless ``policy`` is one of :data:`CHOICES`."""
    if policy not in CHOICES:
        known = ", ".join(map(repr, sorted(CHOICES)))
        raise InputError(f"there is no policy {policy!r}; choose one of {known}")


def finish(program: RProgram, max_arena_bytes: int | None = None) -> RProgram:
    """The program with its memory planned, proved safe."""
    planned = plan_memory(program, max_arena_bytes)
    verify(planned)
    return planned
