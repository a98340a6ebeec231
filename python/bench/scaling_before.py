"""Today's plans for more vEUs beside those of an earlier checkout, with its kernels."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean

from bench.class_gains import CLASSES
from bench.scaling import BOUND, Makespans
from bench.scaling_tables import Rows, Scalings, counts_of
from tvm_rammer.schedule import AUTO


def before_columns(before: Scalings) -> list[str]:
    """Headings of :func:`before_rows`."""
    parts = ("auto over its sequential, {}", "bound, {}", "auto over its auto, {}")
    return ["model", *(part.format(count) for count in counts_of(before) for part in parts)]


def before_rows(before: Scalings, now: Scalings) -> Rows:
    """A row for each model that both know, and means of the classes of models and of all."""
    counts = counts_of(before)
    ratios = {
        model: [
            ratio
            for count in counts
            for ratio in _ratios(before[model].makespans[count], now[model].makespans[count])
        ]
        for model in before
        if model in now and set(counts) <= set(now[model].makespans)
    }
    groups = {each.name: each.models for each in CLASSES} | {"all": tuple(ratios)}
    means = {
        f"{name}, geometric mean": [ratios[model] for model in models if model in ratios]
        for name, models in groups.items()
    }
    return [
        *(_row(model, mine) for model, mine in ratios.items()),
        *(_row(name, _means(some)) for name, some in means.items() if len(some) > 1),
    ]


def _ratios(before: Makespans, now: Makespans) -> tuple[float, float, float]:
    return (
        before["sequential"] / now[AUTO],
        before["sequential"] / now[BOUND],
        before[AUTO] / now[AUTO],
    )


def _means(rows: list[list[float]]) -> Iterable[float]:
    return map(geometric_mean, zip(*rows, strict=True))


def _row(name: str, ratios: Iterable[float]) -> list[str]:
    return [name, *(f"{ratio:.2f}x" for ratio in ratios)]
