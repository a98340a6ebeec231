"""Tables of compare_policies.py's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.markdown import QuestionTable
from bench.scaling import BOUND, BOUNDS, Scaling, mean_speed_up, speed_up
from tvm_rammer.schedule import AUTO

Scalings = Mapping[str, Scaling]
Rows = list[list[str]]


def policy_columns(found: Scaling) -> list[str]:
    """Headings of :func:`policy_rows`."""
    return ["vEUs", *_rivals(found)]


def policy_rows(found: Scaling) -> Rows:
    """Speed-up of each policy over ``sequential`` by number of vEUs."""
    return [
        [count, *(f"{speed_up(makespans, policy):.2f}x" for policy in _rivals(found))]
        for count, makespans in found.makespans.items()
    ]


def _rivals(found: Scaling) -> list[str]:
    """The policies that were simulated, besides the one that they are compared with."""
    others = (AUTO, "sequential", BOUND, *BOUNDS)
    (first, *_) = found.makespans.values()
    return [*(name for name in first if name not in others), AUTO, BOUND]


def counts_of(scalings: Scalings) -> list[str]:
    """The numbers of vEUs that were simulated."""
    return list(next(iter(scalings.values())).makespans) if scalings else []


def _speed_up_columns(scalings: Scalings) -> Sequence[str]:
    counts = counts_of(scalings)
    bound = [text for count in counts for text in (count, f"bound, {count}")]
    return ["model", *bound]


def _speed_up_rows(scalings: Scalings) -> Rows:
    counts = counts_of(scalings)
    rows = [
        [
            model,
            *(
                f"{speed_up(found.makespans[count], policy):.2f}x"
                for count in counts
                for policy in (AUTO, BOUND)
            ),
        ]
        for model, found in scalings.items()
    ]
    if len(rows) > 1:
        means = [
            mean_speed_up([found.makespans[count] for found in scalings.values()], policy)
            for count in counts
            for policy in (AUTO, BOUND)
        ]
        rows.append(["geometric mean", *(f"{mean:.2f}x" for mean in means)])
    return rows


def _bound_columns(scalings: Scalings) -> Sequence[str]:
    fewest = counts_of(scalings)[:1]
    return [
        "model",
        *(f"{name}, ms" for count in fewest for name in ("sequential", AUTO, *BOUNDS)),
        "auto to the bound",
    ]


def _bound_rows(scalings: Scalings) -> Rows:
    return [
        [
            model,
            *(f"{1e3 * makespans[name]:.3g}" for name in ("sequential", AUTO, *BOUNDS)),
            f"{makespans[AUTO] / makespans[BOUND]:.2f}x" if makespans[BOUND] else "-",
        ]
        for model, found in scalings.items()
        for makespans in list(found.makespans.values())[:1]
    ]


def _choice_columns(scalings: Scalings) -> Sequence[str]:
    return ["model", "operators with a choice", *counts_of(scalings)]


def _choice_rows(scalings: Scalings) -> Rows:
    return [
        [
            model,
            f"{found.choices:,}",
            *(
                f"{fast[AUTO] / found.makespans[count][AUTO]:.2f}x"
                for count, fast in found.fast.items()
            ),
        ]
        for model, found in scalings.items()
        if found.choices
    ]


TABLES = (
    QuestionTable(
        "More vEUs",
        "Speed-up of auto over sequential by number of vEUs, both simulated, and that of a "
        "makespan that no plan of auto's kernels can beat.",
        _speed_up_columns,
        _speed_up_rows,
    ),
    QuestionTable(
        "What is left on the fewest vEUs",
        "Simulated makespans on the fewest vEUs of the table above, beside what no plan of the "
        "same kernels can beat: the longest path of the graph with every operator across all vEUs; "
        "all work spread evenly over the vEUs; all weights that the last-level cache cannot hold "
        "over the bandwidth of memory.",
        _bound_columns,
        _bound_rows,
    ),
    QuestionTable(
        "Fast and efficient rKernels",
        "Makespan of auto's plan where every operator has its fast rKernel alone, over that where "
        "it may choose, by number of vEUs.",
        _choice_columns,
        _choice_rows,
    ),
)
