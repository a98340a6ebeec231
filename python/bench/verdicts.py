"""What the results say about the goals: where they are met, and what holds the others back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import peers
from bench.goals import goal
from bench.records import Records
from tvm_rammer.testing.timing_results import Ratio

#: A plan that is chosen must not be slower than the plain ones by more, noise aside.
NEVER_LOSES = 1.02
#: Seconds that a model may take to compile.
COMPILE_SECONDS = 60.0
#: Plans that run one operator after the other.
PLAIN = frozenset(("sequential", "per-op"))


@dataclass(frozen=True)
class Verdict:
    """How we did on a model.

    Attributes
    ----------
    model : str
    ratio : Ratio
        To the fastest peer.
    goal : float
        What it should be at most.
    peer : str
        The fastest one.
    policy : str
        Whose plan ran; empty where that is not known.
    limit : str
        What holds the plan back, in a sentence; empty where that is not known.
    """

    model: str
    ratio: Ratio
    goal: float
    peer: str
    policy: str
    limit: str

    @property
    def met(self) -> bool:
        """Whether the goal is met."""
        return self.ratio.value <= self.goal


def verdicts(models: peers.Models) -> list[Verdict]:
    """A verdict for every model that has a time of ours and of a peer."""
    found = []
    for model, records in models.items():
        ratio, ours, peer = (
            peers.to_best_peer(records),
            peers.our_name(records),
            peers.best_peer(records),
        )
        if ratio and ours and peer:
            facts = records[ours].outcome.facts
            found.append(Verdict(model, ratio, goal(model), peer, policy_of(facts), limit(facts)))
    return found


def slower_than_plain(models: peers.Models) -> list[tuple[str, str, Ratio]]:
    """Models on which ``auto`` lost to ``sequential`` or ``per-op`` beyond noise, and to which."""
    pairs = ((model, peers.to_own_baseline(records)) for model, records in models.items())
    return [
        (model, found[0], found[1])
        for model, found in pairs
        if found and found[1].low > NEVER_LOSES
    ]


def co_scheduled(models: peers.Models) -> list[str]:
    """Models for which ``auto`` chose a plan that is not a plain one."""
    return [
        model
        for model, records in models.items()
        if (policies := _policies(records)) and not policies <= PLAIN
    ]


def slow_to_compile(models: peers.Models) -> list[tuple[str, float]]:
    """Models that ``auto`` takes too long for, the slowest first."""
    times = [
        (model, records[peers.OURS].outcome.set_up_s)
        for model, records in models.items()
        if peers.OURS in records and records[peers.OURS].good
    ]
    return sorted(((m, s) for m, s in times if s > COMPILE_SECONDS), key=lambda item: -item[1])


def policy_of(facts: Mapping[str, Any]) -> str:
    """Whose plans a library runs."""
    return ", ".join(dict.fromkeys(map(_chosen, facts.get("regions", ()))))


def limit(facts: Mapping[str, Any]) -> str:
    """What limits the plan of a library's longest region, and what a better one would take."""
    regions = facts.get("regions", ())
    if not regions:
        return ""
    longest = max(regions, key=lambda region: region["explanation"]["predicted"])
    found = longest["explanation"]
    return f"{found['limit']}: it takes {found['needs']}"


def _policies(records: Records) -> set[str]:
    record = records.get(peers.OURS)
    if record is None or not record.good:
        return set()
    return {_chosen(region) for region in record.outcome.facts.get("regions", ())}


def _chosen(region: Mapping[str, Any]) -> str:
    decision = region["decision"]
    return str(decision["chosen"] if decision else region["policy"])
