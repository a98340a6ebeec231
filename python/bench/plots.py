"""Plots of the results, as small SVG files that are the same for the same results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import peers
from bench.ablation_tables import Studies
from bench.goals import goal
from bench.records import ratio
from bench.scaling import mean_speed_up, speed_up
from bench.scaling_tables import Scalings, counts_of
from bench.study import BASE
from tvm_rammer.schedule import AUTO, POLICIES
from tvm_rammer.testing.timing_results import Ratio

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: a tenth of the size
    "svg.hashsalt": "tvm-rammer",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
#: One colour for each contender, told apart also without colours.
_COLOURS = {
    "auto": "#0072b2",
    "sequential": "#000000",
    "per-op": "#009e73",
    "onnxruntime": "#999999",
    "openvino": "#d55e00",
}
#: Of our bars, by whether the goal is met.
_BARS = {True: "#0072b2", False: "#9ecae1"}
#: The plot of peers reaches at least so far to the right.
_LEAST_EDGE = 2.5
_OTHERS = ("#009e73", "#cc79a7", "#e69f00", "#000000", "#56b4e9")
_MARKERS = "osD^vPX*"


def plot_peers(models: peers.Models, names: Sequence[str], path: Path) -> None:
    """Our time over that of the fastest peer as bars, everybody else's as marks, and the goals."""
    shown = {model: records for model, records in models.items() if peers.best_peer(records)}
    figure, axes = _figure(1.2 + 0.21 * len(shown))
    ours = _values({place: peers.to_best_peer(r) for place, r in enumerate(shown.values())})
    goals = {place: goal(model) for place, model in enumerate(shown)}
    edge = max([_LEAST_EDGE, *(1.05 * value for value in ours.values())])
    for met, label in ((True, "tvm-rammer, goal met"), (False, "goal missed")):
        bars = {place: value for place, value in ours.items() if (value <= goals[place]) == met}
        axes.barh(list(bars), list(bars.values()), 0.7, label=label, color=_BARS[met])
    for number, name in enumerate(name for name in names if name != peers.OURS):
        marks = _values(
            {
                place: ratio(records, name, peers.best_peer(records) or "")
                for place, records in enumerate(shown.values())
            }
        )
        axes.plot(
            [min(value, edge) for value in marks.values()],
            list(marks),
            _MARKERS[number % len(_MARKERS)],
            label=name,
            color=_COLOURS.get(name, _OTHERS[number % len(_OTHERS)]),
            markersize=4,
            clip_on=False,
        )
    for place, wanted in goals.items():
        axes.plot([wanted, wanted], [place - 0.45, place + 0.45], color="black", linewidth=1.5)
    axes.axvline(1.0, color="black", linewidth=0.6, linestyle=":")
    axes.set_xlim(0, edge)
    axes.set_xlabel("time over that of the fastest peer (shorter is better); black: goal")
    _models(axes, list(shown))
    _legend(axes, 4)
    _save(figure, path)


def _values(ratios: Mapping[int, Ratio | None]) -> dict[int, float]:
    return {place: found.value for place, found in ratios.items() if found}


def plot_policies(studies: Studies, path: Path) -> None:
    """Time of every policy over that of the sequential plan."""
    figure, axes = _figure(1.6 + 0.24 * len(studies))
    for number, policy in enumerate((*(p for p in POLICIES if p != BASE), AUTO)):
        marks = [
            (place, found.plans[policy].ratio)
            for place, found in enumerate(studies.values())
            if policy in found.plans
        ]
        axes.plot(
            [ratio[0] for _, ratio in marks],
            [place for place, _ in marks],
            _MARKERS[number % len(_MARKERS)],
            label=policy,
            color=_COLOURS["auto"] if policy == AUTO else _OTHERS[number % len(_OTHERS)],
            markersize=6 if policy == AUTO else 4,
        )
        if policy == AUTO:
            for place, (_, low, high) in marks:
                axes.plot([low, high], [place, place], color=_COLOURS[AUTO], linewidth=1)
    axes.axvline(1.0, color="black", linewidth=0.6, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("time over that of the sequential plan (left is better)")
    _models(axes, list(studies))
    _legend(axes, len(POLICIES))
    _save(figure, path)


def plot_scaling(scalings: Scalings, path: Path) -> None:
    """Simulated speed-up of auto over sequential by number of vEUs: all models, and the mean."""
    figure, axes = _figure(4.0)
    counts = counts_of(scalings)
    places = list(map(int, counts))
    by_gain = sorted(scalings, key=lambda model: -speed_up(scalings[model].makespans[counts[-1]]))
    for rank, model in enumerate(by_gain):
        values = [speed_up(scalings[model].makespans[count]) for count in counts]
        named = rank < len(_OTHERS)
        axes.plot(
            places,
            values,
            color=_OTHERS[rank] if named else "#cccccc",
            linewidth=1.2 if named else 0.7,
            label=model if named else None,
        )
    mean = [
        mean_speed_up([found.makespans[count] for found in scalings.values()]) for count in counts
    ]
    axes.plot(places, mean, color=_COLOURS["auto"], linewidth=2.5, label="geometric mean")
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, counts)
    axes.set_xlabel("vEUs")
    axes.set_ylabel("speed-up of auto over sequential, simulated")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_tuning(gains: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """Expected gain of the plan by number of trials, a line that steps up for each model."""
    figure, axes = _figure(3.5)
    for number, (model, steps) in enumerate(gains.items()):
        axes.step(
            [0, *(trials for trials, _ in steps)],
            [1.0, *(gain for _, gain in steps)],
            where="post",
            label=model,
            color=_OTHERS[number % len(_OTHERS)],
            linewidth=1.5,
        )
    axes.set_xlabel("trials")
    axes.set_ylabel("gain of the plan, expected")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _figure(height: float) -> tuple[Figure, Axes]:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.5, height), layout="constrained", facecolor="white")
        return figure, figure.add_subplot()


def _models(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _legend(axes: Axes, columns: int) -> None:
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=columns, frameon=False, fontsize=8
    )


def _save(figure: Figure, path: Path) -> None:
    with matplotlib.rc_context(_STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None})
    # Its lines end in blanks.
    text = "\n".join(line.rstrip() for line in path.read_text().splitlines())
    path.write_text(f"{text}\n")
