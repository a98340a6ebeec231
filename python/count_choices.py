#!/usr/bin/env python3
"""Count the operators of the model zoo that have a choice of tilings, rule by rule.

    python python/count_choices.py
    python python/count_choices.py --models bert_base,squeezenet --veus 16

A tiling is on the front if no other one of the operator is at least as fast alone on all vEUs and
takes as little of them together, on a device of one of the sizes. Kernels that were never measured
on this machine are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click
import onnx
from bench.console_table import console_table
from bench.graphs import operator_graphs
from rich.console import Console
from rich.progress import track

from tvm_rammer.errors import InputError, RammerError
from tvm_rammer.rprogram import RKernel
from tvm_rammer.testing.models import MODELS, get_model

#: What takes less is not worth a choice.
_SECONDS = 2e-6


#: How many operators each rule made with so many tilings, of which so many are on the front.
Counted = Counter[tuple[str, int, int]]


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--veus", default="2,16,64", show_default=True, help="Sizes of devices.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
def main(models: str, veus: str, quick: bool) -> None:
    """Count operators with two tilings or more, of those that take more than 2 us."""
    console = Console()
    found: dict[str, Counted] = {}
    try:
        counts = _sizes(veus)
        names = [get_model(name.strip()).name for name in models.split(",") if name.strip()]
        for name in track(names or list(MODELS), "counting", console=Console(stderr=True)):
            info = get_model(name)
            found[name] = choices(info.tiny() if quick else info.build(), counts)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    by_rule: dict[str, Counted] = {}
    for (rule, *tilings), count in sum(found.values(), Counter()).items():
        by_rule.setdefault(rule, Counter())[(rule, *tilings)] += count
    for title, rows in (("model", found), ("rule", by_rule)):
        columns = (title, "operators", "2 tilings", "%", "2 on the front", "%")
        console.print(
            console_table(f"Operators of more than 2 us, by {title}", columns, _rows(rows))
        )


def choices(model: onnx.ModelProto, counts: Sequence[int]) -> Counted:
    """Count the operators of a model that take more than 2 us.

    Parameters
    ----------
    model : onnx.ModelProto
    counts : sequence of int
        Numbers of vEUs.
    """
    found: Counted = Counter()
    for graph in operator_graphs(model, measured=True):
        for operator in graph.operators:
            first, tilings = operator.candidates[0], operator.candidates
            if first.num_tiles * first.tile_time > _SECONDS:
                front = max(_on_front(tilings, count) for count in counts)
                found[first.origin, len(tilings), front] += 1
    return found


def _on_front(candidates: Sequence[RKernel], num_veus: int) -> int:
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


def _rows(found: dict[str, Counted]) -> list[tuple[str, ...]]:
    counts = {name: _counts(each) for name, each in found.items()}
    counts["all"] = tuple(map(sum, zip(*counts.values(), strict=True)))
    rows = []
    for name, (total, *some) in counts.items():
        parts = [text for n in some for text in (f"{n:,}", f"{100 * n / max(1, total):.0f}")]
        rows.append((name, f"{total:,}", *parts))
    return rows


def _counts(found: Counted) -> tuple[int, ...]:
    """All operators, those with two tilings or more, and those with two on the front."""
    two = sum(n for (_, tilings, _), n in found.items() if tilings > 1)
    return found.total(), two, sum(n for (_, _, front), n in found.items() if front > 1)


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"--veus {text!r} is no list of positive whole numbers, such as 2,16,64")
    return tuple(map(int, parts))


if __name__ == "__main__":
    main()
