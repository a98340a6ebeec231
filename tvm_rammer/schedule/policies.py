"""The policies by name, and the way from an operator graph to a verified rProgram."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tvm_rammer.errors import InputError
from tvm_rammer.no_collection import no_collection
from tvm_rammer.plug_ins import home_of, register_offered
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.schedule.arena_cap import policies_within
from tvm_rammer.schedule.auto import BASELINE, PER_OP, auto
from tvm_rammer.schedule.check_graph import check_graph
from tvm_rammer.schedule.costs import CostModel, Device
from tvm_rammer.schedule.estf import estf
from tvm_rammer.schedule.ios import ios
from tvm_rammer.schedule.ios import limit as ios_limit
from tvm_rammer.schedule.locality import limit as locality_limit
from tvm_rammer.schedule.locality import locality
from tvm_rammer.schedule.memory import plan_memory
from tvm_rammer.schedule.policy import CheckedPlace, Comparing, Policy
from tvm_rammer.schedule.sequential import sequential
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.wavefront import wavefront

#: Entry points of other packages.
GROUP = "tvm_rammer.policies"
#: What a user may ask for besides a policy: the selector above them.
AUTO = "auto"
#: Our own policies.
POLICIES = {
    policy.name: policy
    for policy in (
        Policy(BASELINE, sequential, "operator after operator, each across all vEUs"),
        Policy(
            "wavefront",
            Comparing(wavefront),
            "the operators of a level of the graph together (Rammer)",
        ),
        Policy("estf", Comparing(estf), "what can start soonest first, by the longest path"),
        Policy("ios", ios, "stages, found by dynamic programming", ios_limit),
        Policy("locality", locality, "weights stay with a core", locality_limit),
    )
}

_registered: dict[str, Policy] = {}


def register_policy(policy: Policy) -> None:
    """Add a policy to those that may be asked for, and that ``auto`` chooses from.

    Other packages may offer theirs by the entry-point group ``tvm_rammer.policies``, each entry of
    which is a callable that makes a :class:`Policy`.

    Parameters
    ----------
    policy : Policy
        With a name of its own.

    Raises
    ------
    InputError
        When it is no policy, or its name is taken.
    """
    if not isinstance(policy, Policy):
        raise InputError(
            f"{home_of(policy)} is no policy: give register_policy a tvm_rammer.schedule.Policy"
        )
    home = home_of(policy.place)
    taken = {name: home_of(known.place) for name, known in {**POLICIES, **_registered}.items()}
    taken |= dict.fromkeys((AUTO, PER_OP), "tvm_rammer.schedule.auto")
    if policy.name in taken:
        raise InputError(
            f"there is a policy {policy.name!r} already, {taken[policy.name]}: "
            f"give {home} another name"
        )
    if not policy.help or len(policy.help.splitlines()) > 1:
        raise InputError(f"the help of the policy {policy.name!r} ({home}) is not one line")
    _registered[policy.name] = policy


def policies() -> dict[str, Policy]:
    """All policies by name, our own first; wrong plans of others are errors that name them."""
    _find_others()
    return {
        **POLICIES,
        **{n: replace(p, place=CheckedPlace(p)) for n, p in _registered.items()},
    }


def choices() -> tuple[str, ...]:
    """What a user may ask for: a policy, or the selector above them."""
    return (AUTO, *policies())


@cache
def _find_others() -> None:
    """Register what other packages offer, once."""
    register_offered(GROUP, "policy", register_policy)


@no_collection()
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
        One of :func:`choices`; ``"auto"`` decides by simulation here.
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
    num_veus = vdevice.num_veus
    # Our own first: what is wrong with a plug-in must not stop those who do not use it.
    usable = POLICIES if policy in POLICIES else policies()
    if policy != AUTO:
        # A plan that is too large for any number of vEUs falls back on the baseline.
        usable = {name: usable[name] for name in (policy, BASELINE)}
    if max_arena_bytes is not None:
        usable = policies_within(max_arena_bytes, graph, num_veus, known, usable)
    if policy == AUTO:
        return finish(auto(graph, num_veus, known, usable)[0].program)
    chosen = usable.get(policy, usable[BASELINE])
    program = synchronise(graph, chosen(graph, num_veus, known), known)
    return finish(program)


def check_policy(policy: str) -> None:
    """Raise an InputError unless ``policy`` is one of :func:`choices`."""
    if policy not in (*POLICIES, AUTO) and policy not in choices():
        known = ", ".join(map(repr, sorted(choices())))
        raise InputError(f"there is no policy {policy!r}; choose one of {known}")


def finish(program: RProgram) -> RProgram:
    """The program with its memory planned, proved safe."""
    planned = plan_memory(program)
    verify(planned)
    return planned
