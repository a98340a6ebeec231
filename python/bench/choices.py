"""How many operators of a model have a choice of tilings, and what kind of choice it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench import machine
from bench.findings import Findings, FindingsFile
from bench.markdown import table, whole_page
from tvm_rammer.rprogram import OperatorGraph, RKernel

#: What takes less is not worth a choice.
SHORTEST = 2e-6
#: The columns of a table, after its first.
COLUMNS = ("operators", "2 tilings", "%", "2 on the front", "%", "of 2, one is best")


@dataclass(frozen=True)
class AlikeOperators:
    """Operators with so many ``tilings`` by a rule, of which so many are on the ``front``."""

    rule: str
    tilings: int
    front: int
    operators: int


@dataclass(frozen=True)
class Choices:
    """The operators of a model that take longer than ``SHORTEST`` on one vEU."""

    alike: tuple[AlikeOperators, ...]


#: What count_choices.py writes.
CHOICES = FindingsFile("count_choices.py", Choices)


def choices(graphs: Iterable[OperatorGraph], counts: Sequence[int]) -> Choices:
    """Count the operators of a model.

    Parameters
    ----------
    graphs : iterable of OperatorGraph
        With measured costs.
    counts : sequence of int
        Sizes of devices, in vEUs.
    """
    found: Counter[tuple[str, int, int]] = Counter()
    for operator in (operator for graph in graphs for operator in graph.operators):
        first, tilings = operator.candidates[0], operator.candidates
        if first.num_tiles * first.tile_time > SHORTEST:
            front = max(on_front(tilings, count) for count in counts)
            found[first.origin, len(tilings), front] += 1
    return Choices(tuple(AlikeOperators(*kind, number) for kind, number in sorted(found.items())))


def on_front(candidates: Sequence[RKernel], num_veus: int) -> int:
    """How many candidates have something for them on a device: time alone, or area."""
    points = {
        (-(-kernel.num_tiles // num_veus) * kernel.tile_time, kernel.num_tiles * kernel.tile_time)
        for kernel in candidates
    }
    return sum(
        not any(
            other != point and other[0] <= point[0] and other[1] <= point[1] for other in points
        )
        for point in points
    )


def by_model(found: Mapping[str, Choices]) -> list[tuple[str, ...]]:
    """A row for each model, and one for all."""
    return _rows({model: each.alike for model, each in found.items()})


def by_rule(found: Mapping[str, Choices]) -> list[tuple[str, ...]]:
    """A row for each rule, and one for all."""
    rules: dict[str, list[AlikeOperators]] = {}
    for alike in (alike for each in found.values() for alike in each.alike):
        rules.setdefault(alike.rule, []).append(alike)
    return _rows(dict(sorted(rules.items())))


def choices_page(found: Findings[Choices]) -> str:
    """Which operators of the zoo have a choice."""
    sizes = ", ".join(map(str, found.setting.veus))
    parts = [
        "# Operators that have a choice of tilings",
        f"Of the operators that take more than {SHORTEST * 1e6:g} us of one core. A tiling is on "
        "the front if no other one of the operator is at least as fast alone on all vEUs and takes "
        f"as little of them together, on a device of {sizes} vEUs. Where one is best, it takes the "
        "least time alone and the least of the vEUs on each of the devices: more than one would be "
        f"no choice. {machine.sentence(found.machine)}",
        *machine.typed(found.machine),
        "## By model",
        table(("model", *COLUMNS), by_model(found.found)),
        "## By rule",
        table(("rule", *COLUMNS), by_rule(found.found)),
    ]
    return whole_page([*parts, *found.failures()])


def _rows(found: Mapping[str, Sequence[AlikeOperators]]) -> list[tuple[str, ...]]:
    everything = [alike for each in found.values() for alike in each]
    return [_row(name, each) for name, each in {**found, "all": everything}.items()]


def _row(name: str, found: Sequence[AlikeOperators]) -> tuple[str, ...]:
    total = sum(each.operators for each in found)
    several = sum(each.operators for each in found if each.tilings > 1)
    front = sum(each.operators for each in found if each.front > 1)
    parts = [
        text for n in (several, front) for text in (f"{n:,}", f"{100 * n / max(1, total):.0f}")
    ]
    return (name, f"{total:,}", *parts, f"{several - front:,}")
