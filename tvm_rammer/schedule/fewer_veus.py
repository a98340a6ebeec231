"""Plans that leave vEUs idle: more of them cost waits and transfers, which may be more than they
compute.

Across sockets what one vEU wrote reaches another late, and a network of small operators runs sooner
on the cores of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.policy import Policy
from tvm_rammer.schedule.trials import Trials
from tvm_rammer.units import counted

_NAME = re.compile(r"(?P<policy>.+) on (?P<count>[\d,]+) vEUs?")


def halvings(num_veus: int) -> Iterator[int]:
    """Half of the vEUs, a quarter, ... and one."""
    while num_veus > 1:
        num_veus //= 2
        yield num_veus


def with_idle(placement: Placement, num_veus: int) -> Placement:
    """A placement on fewer vEUs as one on ``num_veus``, of which the last ones idle."""
    idle = ((),) * (num_veus - len(placement.veus))
    return replace(placement, veus=(*placement.veus, *idle))


def on_fewer(policy: Policy, count: int, trials: Trials) -> Placement:
    """What a policy makes of ``count`` vEUs, as a placement for those of ``trials``."""
    return with_idle(policy(trials.graph, count, trials.costs), trials.num_veus)


def name_on_fewer(policy: str, count: int) -> str:
    """What the selector calls a policy's plan for fewer vEUs."""
    return f"{policy} on {counted(count, 'vEU')}"


def policy_and_veus(name: str) -> tuple[str, int | None]:
    """The policy of such a plan, and its vEUs; ``None`` of a plan for all of them."""
    found = _NAME.fullmatch(name)
    if found is None:
        return name, None
    return found["policy"], int(found["count"].replace(",", ""))


def sooner_on_fewer(
    policies: Mapping[str, Policy], baseline: str, seconds: float, least: float, trials: Trials
) -> dict[str, Placement]:
    """The placements of all policies on fewer vEUs, as few as the baseline alone takes best.

    Parameters
    ----------
    policies : mapping of str to Policy
    baseline : str
        One of them: it is halved as long as that makes it shorter.
    seconds : float
        What it takes on all vEUs.
    least : float
        By how much, as a part of its time.
    trials : Trials

    Returns
    -------
    dict of str to Placement
        By the name of the plan; empty where it takes all vEUs.
    """
    if any(policy.final for policy in policies.values()):
        return {}
    best = None
    for count in halvings(trials.num_veus):
        fewer = Trials(trials.graph, count, trials.costs)
        halved = trials.seconds(with_idle(policies[baseline].first(fewer), trials.num_veus))
        if halved >= (1 - least) * seconds:
            break
        seconds, best = halved, count
    if best is None:
        return {}
    return {name_on_fewer(n, best): on_fewer(p, best, trials) for n, p in policies.items()}
