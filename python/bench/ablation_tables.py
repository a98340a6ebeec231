"""Tables of ablations.py's results, one for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from bench.markdown import QuestionTable, fixed
from bench.study import (
    BARRIERS,
    BASE,
    NO_WINOGRAD,
    PlanResult,
    Study,
    veus,
)
from tvm_rammer.schedule import AUTO, POLICIES

Studies = Mapping[str, Study]
Rows = list[list[str]]


_RIVALS = tuple(policy for policy in POLICIES if policy != BASE)


def _policy_rows(studies: Studies) -> Rows:
    rows = [
        [
            model,
            f"{found.plans[BASE].milliseconds:.3g}",
            *(_ratio(found.plans.get(policy)) for policy in (*_RIVALS, AUTO)),
            _chosen(found.policy),
        ]
        for model, found in studies.items()
    ]
    if len(rows) > 1:
        means = [_mean(studies, policy) for policy in (*_RIVALS, AUTO)]
        rows.append(["geometric mean", "", *means, ""])
    return rows


def _barrier_rows(studies: Studies) -> Rows:
    rows = []
    for model, found in studies.items():
        waits, barriers = found.plans["wavefront"], found.plans[BARRIERS]
        rows.append(
            [
                model,
                f"{waits.tasks:,}",
                f"{waits.waits:,}",
                f"{waits.milliseconds:.3g}",
                f"{barriers.milliseconds:.3g}",
                f"{barriers.milliseconds / waits.milliseconds:.2f}x",
            ]
        )
    return rows


def _winograd_rows(studies: Studies) -> Rows:
    return [
        [
            model,
            f"{found.plans[BASE].milliseconds:.3g}",
            f"{found.plans[NO_WINOGRAD].milliseconds:.3g}",
            _ratio(found.plans[NO_WINOGRAD]),
        ]
        for model, found in studies.items()
        if NO_WINOGRAD in found.plans
    ]


def _veu_counts(studies: Studies) -> list[int]:
    most = max((found.num_veus for found in studies.values()), default=1)
    return [1 << power for power in range(most.bit_length()) if 1 << power < most]


def _veu_columns(studies: Studies) -> Sequence[str]:
    most = max((found.num_veus for found in studies.values()), default=1)
    counts = [*_veu_counts(studies), most]
    return ["model", *(f"{count}, ms" for count in counts), "speed-up"]


def _veu_rows(studies: Studies) -> Rows:
    counts = _veu_counts(studies)
    rows = []
    for model, found in studies.items():
        plans = [found.plans[veus(count)] for count in counts if veus(count) in found.plans]
        times = [plan.milliseconds for plan in (*plans, found.plans[AUTO])]
        if len(times) > 1:
            rows.append([model, *(f"{t:.3g}" for t in times), f"{times[0] / times[-1]:.2f}x"])
    return rows


def _utilisation_rows(studies: Studies) -> Rows:
    rows = []
    for model, found in studies.items():
        plans = [found.plans[BASE], found.plans[AUTO]]
        pairs = [(plan.utilisation_simulated, plan.utilisation_measured) for plan in plans]
        rows.append([model, *(_percent(share) for pair in pairs for share in pair)])
    return rows


def _dispatch_rows(studies: Studies) -> Rows:
    return [
        [model, f"{found.dispatch_ns:,.0f}", f"{found.dispatch_share:.1%}"]
        for model, found in studies.items()
        if found.dispatch_ns is not None and found.dispatch_share is not None
    ]


def roofline_rows(studies: Studies) -> Rows:
    """All kernels on one core, and the sequential plan on all, against what these reach at best."""
    return [
        [
            model,
            f"{kernels.milliseconds:.3g}",
            f"{kernels.roofline:.3g}",
            f"{kernels.milliseconds / kernels.roofline:.2f}x",
            f"{found.plans[BASE].milliseconds:.3g}",
            f"{found.roofline.milliseconds:.3g}",
            _interval(found.roofline.ratio),
            f"{found.roofline.quiet:.2f}x",
            _interval(found.roofline.side_by_side),
        ]
        for model, found in studies.items()
        if (kernels := found.kernels) and kernels.roofline
    ]


def slow_operator_rows(study: Study) -> Rows:
    """The operators of a model's sequential plan that lose most to their roofline."""
    return [
        [
            f"{slow.operator} x {slow.count}",
            slow.rule,
            slow.limit,
            f"{slow.milliseconds:.3g}",
            f"{slow.waiting:.2g}",
            f"{slow.roofline:.3g}",
            f"{slow.milliseconds / slow.roofline:.2f}x" if slow.roofline else "-",
        ]
        for slow in study.slowest
    ]


def _ratio(plan: PlanResult | None) -> str:
    if plan is None:
        return "-"
    return _interval(plan.ratio)


def _interval(ratio: tuple[float, float, float]) -> str:
    middle, low, high = ratio
    return f"{middle:.2f}x ({low:.2f} to {high:.2f})"


def _mean(studies: Studies, policy: str) -> str:
    found = [s.plans[policy].ratio[0] for s in studies.values() if policy in s.plans]
    return f"{geometric_mean(found):.2f}x" if found else "-"


def _chosen(policies: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(policies)) or "-"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


#: Headings of :func:`slow_operator_rows`.
SLOW_OPERATOR_COLUMNS = ("operators", "rule", "limit", "ms", "waiting", "roofline, ms", "ratio")

#: Headings of :func:`roofline_rows`.
ROOFLINE_COLUMNS = (
    "model",
    "kernels, ms",
    "roofline of one core, ms",
    "ratio",
    "sequential, ms",
    "roofline of all, ms",
    "ratio",
    "quiet",
    "side by side",
)

TABLES = (
    QuestionTable(
        "Policies",
        "Measured time over that of the sequential plan of the same kernels, paired by rounds, "
        "with the 95 % interval of the median; below 1 is faster. A dash: not tried on so many "
        "operators.",
        fixed("model", f"{BASE}, ms", *_RIVALS, AUTO, "auto chose"),
        _policy_rows,
    ),
    QuestionTable(
        "Point-to-point waits or barriers",
        "The wavefront policy's plan in one launch with point-to-point waits, and with a launch "
        "for each wave, from which all vEUs return.",
        fixed("model", "rTasks", "waits", "waits, ms", "barriers, ms", "barriers to waits"),
        _barrier_rows,
    ),
    QuestionTable(
        "Winograd",
        "The sequential plan with and without Winograd's algorithm; models without such a kernel "
        "are left out.",
        fixed("model", "on, ms", "off, ms", "off to on"),
        _winograd_rows,
    ),
    QuestionTable(
        "vEUs",
        "What auto's plan takes on fewer vEUs of this machine, measured.",
        _veu_columns,
        _veu_rows,
    ),
    QuestionTable(
        "Utilisation",
        "Share of the vEUs' time that they compute: busy time over makespan times vEUs. A dash: a "
        "model of more than one region, of which no profile can be taken.",
        fixed(
            "model",
            "sequential, simulated",
            "sequential, measured",
            "auto, simulated",
            "auto, measured",
        ),
        _utilisation_rows,
    ),
    QuestionTable(
        "Scheduling overhead",
        "What running a plan costs beside computing, on one vEU, where nothing waits: time between "
        "rTasks, the stamps of the profile included.",
        fixed("model", "ns per rTask", "share of the run"),
        _dispatch_rows,
    ),
    QuestionTable(
        "Kernels against the roofline",
        "The sum over all operators of what is larger, operations over the rate of multiply-adds "
        "or bytes over the bandwidth of where they lie, for the algorithm that each operator uses. "
        "First one core: every kernel measured by itself. Then all vEUs: the sequential plan as it "
        "runs, against rates that all cores reach at the same time, measured in turns with it; "
        "paired by rounds, with the 95 % interval of the median. Quiet are the fastest tenth of "
        "the rounds: neighbours on a shared host take caches, and move cores away from each other. "
        "Side by side are the same kernels "
        "where each core runs the whole model by itself, all at the same time: nothing waits, "
        "nothing crosses; what they lose is not the plan's. Weights that one core has read the "
        "other finds in the cache that they share, so that networks bound by memory take less. An "
        "operand lies in the nearest cache that holds all that was touched since it was: weights "
        "of networks larger than the last one come from memory in every run.",
        fixed(*ROOFLINE_COLUMNS),
        roofline_rows,
    ),
)
