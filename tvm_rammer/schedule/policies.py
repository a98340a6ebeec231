"""The policies by name, and the way from an operator graph to a verified rProgram."""

from __future__ import annotations

from collections.abc import Callable

from tvm_rammer.errors import InputError
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.schedule.costs import CostModel, Device
from tvm_rammer.schedule.estf import estf
from tvm_rammer.schedule.ios import ios
from tvm_rammer.schedule.locality import locality
from tvm_rammer.schedule.memory import plan_memory
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.sequential import sequential
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.wavefront import wavefront

Policy = Callable[[OperatorGraph, Device, CostModel], Placement]

POLICIES: dict[str, Policy] = {
    "sequential": sequential,
    "wavefront": wavefront,
    "estf": estf,
    "ios": ios,
    "locality": locality,
}


def plan(
    graph: OperatorGraph,
    vdevice: Device,
    policy: str = "wavefront",
    costs: CostModel | None = None,
) -> RProgram:
    """Plan an operator graph for a device.

    Parameters
    ----------
    graph : OperatorGraph
    vdevice : Device
        States the number of vEUs, and the costs unless ``costs`` is given.
    policy : str
        A name in :data:`POLICIES`.
    costs : CostModel, optional
        What synchronising and launching cost.

    Returns
    -------
    RProgram
        With waits and offsets, proved safe.

    Raises
    ------
    InputError
        If the policy is unknown or the device has no vEU.
    """
    if policy not in POLICIES:
        known = ", ".join(map(repr, sorted(POLICIES)))
        raise InputError(f"there is no policy {policy!r}; choose one of {known}")
    if vdevice.num_veus < 1:
        raise InputError(f"num_veus is {vdevice.num_veus}; a plan needs at least one vEU")
    placement = POLICIES[policy](graph, vdevice, costs or CostModel.of(vdevice))
    program = plan_memory(synchronise(graph, placement))
    verify(program)
    return program
