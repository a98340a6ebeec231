"""The policy ``auto``: plan with every policy, measure the best on the device, keep the winner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.schedule.check_graph import check_graph
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.decisions import Contender, Decision
from tvm_rammer.schedule.fewer_veus import (
    halvings,
    name_on_fewer,
    on_fewer,
    policy_and_veus,
    sooner_on_fewer,
)
from tvm_rammer.schedule.median_interval import median_interval
from tvm_rammer.schedule.placement import Placement
from tvm_rammer.schedule.policy import Policy
from tvm_rammer.schedule.trials import Trials

#: The plan that others have to beat, and the same operators with a launch each.
BASELINE = "sequential"
PER_OP = "per-op"

#: A policy that promises less than this is not worth measuring, and noise up to it does not matter.
_TIE = 0.01
_DOUBT = 0.02
#: To refine a placement takes several times as long as to make it, and often gains nothing: it may
#: gain this much more than others have.
_MORE_GAIN = 0.03
#: On so few vEUs there is so little to refine that where it gained less than this once, and no more
#: than that for any, the others are left as they are: of 20 plans for 2 to 16 vEUs not one got
#: longer by that.
_FEW_VEUS, _NO_GAIN = 16, 0.003
#: The plans of so few operators are all refined, which takes no time; it may gain more than half.
_FEW_OPERATORS = 32
#: Of so many vEUs half are tried as well where all of them promise less than this many times their
#: speed: simulations of small operators are off by as much.
_MANY_VEUS, _LITTLE_SPEEDUP = 4, 1.5
#: So many co-scheduled plans are measured: those that promise most.
_MOST_MEASURED = 3


@dataclass(frozen=True)
class Plan:
    """A plan that may be run: all at once, or with a launch for each of its waves."""

    name: str
    program: RProgram
    by_wave: bool
    predicted: float


@dataclass(frozen=True)
class _Promise:
    """What a placement is simulated to take; only of those that may run a plan is made."""

    name: str
    placement: Placement
    by_wave: bool
    predicted: float


#: Times plans on the device, taking turns: for each plan a time per round. The first one takes part
#: in all of them, others until it is clear that they are no faster.
Measure = Callable[[Sequence[Plan]], Sequence[Sequence[float]]]


def auto(
    graph: OperatorGraph,
    num_veus: int,
    costs: CostModel,
    policies: Mapping[str, Policy],
    measure: Measure | None = None,
    stored: Decision | None = None,
    by_wave: bool = False,
) -> tuple[Plan, Decision]:
    """Choose the plan of a graph.

    Every policy is simulated, on fewer vEUs too where all of them only get into each other's way.
    Those that promise most are measured against ``sequential`` and ``per-op`` if they promise
    anything; one that is not faster beyond noise loses to them. Where half of many vEUs promise
    almost as much, a plan for these is measured as well. Without ``measure`` the simulation
    decides, and ``sequential`` wins ties.

    Parameters
    ----------
    graph : OperatorGraph
    num_veus : int
    costs : CostModel
    policies : mapping of str to Policy
        The contenders, ``sequential`` among them.
    measure : Measure, optional
        Given only where the device is at hand.
    stored : Decision, optional
        An earlier decision for the same graph and device. If it names one of ``policies``, nothing
        else is planned.
    by_wave : bool
        Every plan runs with a launch for each of its waves, ``sequential`` as ``per-op`` does.

    Returns
    -------
    tuple of (Plan, Decision)
        The plan has its waits, but no addresses yet.
    """
    check_graph(graph)
    trials = Trials(graph, num_veus, costs)

    def plan(promise: _Promise) -> Plan:
        placement = promise.placement
        program = trials.plain(placement)[0] if by_wave else trials.program(placement)
        return Plan(promise.name, program, promise.by_wave, promise.predicted)

    name = stored_policy(stored, policies)
    if stored is not None and name is not None:
        policy, fewer = policies[name], _fewer(stored, policies)
        placement = (
            policy.refined(policy.first(trials), trials)
            if fewer is None
            else on_fewer(policy, fewer, trials)
        )
        per_op = stored.chosen == PER_OP
        promise = (
            _per_op(placement, trials)
            if per_op
            else _promise(stored.chosen, placement, trials, by_wave)
        )
        return plan(promise), replace(stored, how="stored", seconds=0.0)
    limits = {name: policy.limit(graph, num_veus) for name, policy in policies.items()}
    left_out = tuple((name, why) for name, why in limits.items() if why and name != BASELINE)
    contending = {n: policy for n, policy in policies.items() if n not in dict(left_out)}
    first = {name: policy.first(trials) for name, policy in contending.items()}
    refined = _refined(first, contending, trials)
    whole = trials.seconds(first[BASELINE])
    tried = refined | sooner_on_fewer(contending, BASELINE, whole, _TIE, trials)
    promises = [_promise(n, each, trials, by_wave) for n, each in (first | tried).items()]
    baseline = next(promise for promise in promises if promise.name == BASELINE)
    rivals = [] if by_wave else [_per_op(baseline.placement, trials)]
    promises += rivals
    # The sort is stable: among equals the first of ``policies`` wins.
    promises.sort(key=lambda promise: promise.predicted)
    promising = _promising([each for each in promises if each.name in tried], baseline)
    if measure is not None and not by_wave:
        doubtful = _doubtful((promising or [baseline])[0], contending, trials)
        promises = sorted([*promises, *doubtful], key=lambda promise: promise.predicted)
        promising += doubtful
    if measure is not None and promising:
        running = [plan(promise) for promise in (baseline, *rivals, *promising)]
        return _measured(promises, running, measure, left_out)
    chosen = promising[0] if promising else baseline
    contenders = tuple(Contender(each.name, each.predicted) for each in promises)
    reason = _simulated_reason(chosen, baseline, promises)
    return plan(chosen), Decision(chosen.name, "simulated", reason, contenders, left_out)


def stored_policy(stored: Decision | None, policies: Mapping[str, Policy]) -> str | None:
    """The policy whose plan a decision is about, if it is one of some: nothing else is planned."""
    if stored is None:
        return None
    if stored.chosen == PER_OP:
        return BASELINE
    if stored.chosen in policies:
        return stored.chosen
    name, fewer = policy_and_veus(stored.chosen)
    may_idle = fewer is not None and name in policies and not policies[name].final
    return name if may_idle else None


def _fewer(stored: Decision, policies: Mapping[str, Policy]) -> int | None:
    """The vEUs of a stored plan that leaves some idle."""
    return None if stored.chosen in policies else policy_and_veus(stored.chosen)[1]


def _refined(
    first: Mapping[str, Placement], policies: Mapping[str, Policy], trials: Trials
) -> dict[str, Placement]:
    """The baseline, and the others, the shortest first, as long as they may become the shortest.

    That is, by a little more than the most that refining has gained so far; on few vEUs also only
    until it gains nothing. Of few operators all.
    """
    seconds = {name: trials.seconds(placement) for name, placement in first.items()}
    best, gain, found = min(seconds.values()), 1.0, {}
    every = len(trials.graph.operators) <= _FEW_OPERATORS
    for name in sorted(first, key=lambda name: (name != BASELINE, seconds[name])):
        is_rival = name != BASELINE and not every
        if is_rival and seconds[name] > (1 + _MORE_GAIN) * gain * best:
            break
        found[name] = policies[name].refined(first[name], trials)
        after = trials.seconds(found[name])
        gained = seconds[name] / after if after else 1.0
        best, gain = min(best, after), max(gain, gained)
        little = gained < 1 + _NO_GAIN and gain < 1 + _MORE_GAIN
        if is_rival and trials.num_veus <= _FEW_VEUS and little:
            break
    return found


def _promise(name: str, placement: Placement, trials: Trials, by_wave: bool) -> _Promise:
    seconds = trials.plain_seconds_by_wave(placement) if by_wave else trials.seconds(placement)
    return _Promise(name, placement, by_wave, seconds)


def _per_op(baseline: Placement, trials: Trials) -> _Promise:
    return _Promise(PER_OP, baseline, True, trials.seconds_by_wave(baseline))


def _promising(promises: Sequence[_Promise], baseline: _Promise) -> list[_Promise]:
    """The best that promise to beat the baseline, each placement once."""
    found: list[_Promise] = []
    for promise in promises:
        known = any(promise.placement.veus == other.placement.veus for other in found)
        if promise.predicted < (1 - _TIE) * baseline.predicted and not known:
            found.append(promise)
    return found[:_MOST_MEASURED]


def _doubtful(best: _Promise, policies: Mapping[str, Policy], trials: Trials) -> list[_Promise]:
    """The same policy's plans for half of many vEUs, a quarter, ... as far as little is lost."""
    found: list[_Promise] = []
    policy = policies.get(best.name)
    if policy is None or policy.final:
        return found
    seconds = best.predicted
    for count in halvings(trials.num_veus):
        if 2 * count < _MANY_VEUS:
            break
        name = name_on_fewer(best.name, count)
        promise = _promise(name, on_fewer(policy, count, trials), trials, False)
        if promise.predicted > _LITTLE_SPEEDUP * seconds:
            break
        found.append(promise)
        seconds = promise.predicted
    return found


def _measured(
    promises: Sequence[_Promise],
    running: Sequence[Plan],
    measure: Measure,
    left_out: tuple[tuple[str, str], ...],
) -> tuple[Plan, Decision]:
    """Measure ``running``, the baseline first, and keep the fastest."""
    started = time.perf_counter()
    times = measure(running)
    seconds = time.perf_counter() - started
    found: dict[str, Contender] = {}
    for plan, mine in zip(running, times, strict=True):
        ratios = [own / base for own, base in zip(mine, times[0], strict=False)]
        found[plan.name] = Contender(
            plan.name, plan.predicted, median(mine), median_interval(ratios), len(ratios)
        )
    contenders = tuple(found.get(p.name, Contender(p.name, p.predicted)) for p in promises)
    chosen = running[0]
    best = 1.0
    for plan in running[1:]:
        middle, _, high = _ratio(found[plan.name])
        if middle < best and high < 1.0:
            chosen, best = plan, middle
    doubtful = [
        contender
        for name, contender in found.items()
        if name != BASELINE and chosen is running[0] and _ratio(contender)[1] < 1 - _DOUBT
    ]
    reason = _measured_reason(chosen, found, doubtful, len(times[0]))
    decision = Decision(
        chosen.name, "measured", reason, contenders, left_out, seconds, not doubtful
    )
    return chosen, decision


def _ratio(contender: Contender) -> tuple[float, float, float]:
    assert contender.ratio is not None, "it was measured"
    return contender.ratio


def _measured_reason(
    chosen: Plan, found: Mapping[str, Contender], doubtful: Sequence[Contender], rounds: int
) -> str:
    if chosen.name != BASELINE:
        middle, low, high = _ratio(found[chosen.name])
        return (
            f"{chosen.name} took {middle:.2f} of the time of {BASELINE} "
            f"(95 %: {low:.2f} to {high:.2f}, {rounds} rounds)"
        )
    if doubtful:
        name, low = min((_ratio(c)[1], c.name) for c in doubtful)[::-1]
        return (
            f"no plan was faster than {BASELINE} beyond noise in {rounds} rounds, but {name} may "
            f"be faster by {1 - low:.0%}: build again on an idle machine"
        )
    return f"no plan was faster than {BASELINE} in {rounds} rounds"


def _simulated_reason(chosen: _Promise, baseline: _Promise, promises: Sequence[_Promise]) -> str:
    if chosen is not baseline:
        return f"{chosen.name} promises {chosen.predicted / baseline.predicted:.2f} of {BASELINE}"
    gain = 1 - promises[0].predicted / baseline.predicted if baseline.predicted else 0.0
    return (
        f"no policy promises more than {_TIE:.0%} over {BASELINE} (the best: {max(0.0, gain):.1%})"
    )
