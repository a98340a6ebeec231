#!/usr/bin/env python3
"""Count the operators of the model zoo that have a choice of tilings, rule by rule.

    python python/count_choices.py --json docs/results/choices.json
    python python/count_choices.py --models bert_base,squeezenet --veus 16

A tiling is on the front if no other one of the operator is at least as fast alone on all vEUs and
takes as little of them together, on a device of one of the sizes. Kernels that were never measured
on this machine are. With --json what is in the file is not done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from bench.choices import CHOICES, COLUMNS, Choices, by_model, by_rule, choices
from bench.console_table import console_table
from bench.findings import FindingsSetting, chosen_models, numbers_of_veus
from bench.graphs import operator_graphs
from rich.console import Console

from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model

SCRIPT = "python/count_choices.py"


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--veus", default="2,16,64", show_default=True, help="Sizes of devices.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, veus: str, quick: bool, json_path: Path | None) -> None:
    """Count operators with two tilings or more, of those that take more than 2 us."""
    console = Console()
    try:
        chosen, counts = chosen_models(models), numbers_of_veus(veus, "2,16,64")
        results = CHOICES.resume(json_path, FindingsSetting(quick, counts))
        results.find_all(SCRIPT, chosen, json_path, "counting", counted, quick, counts)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    shown = results.of(chosen)
    for title, rows in (("model", by_model(shown)), ("rule", by_rule(shown))):
        heading = f"Operators of more than 2 us, by {title}"
        console.print(console_table(heading, (title, *COLUMNS), rows))
    results.print_failed(console, chosen)


def counted(name: str, quick: bool, counts: Sequence[int]) -> Choices:
    """Count a model's."""
    info = get_model(name)
    return choices(operator_graphs(info.tiny() if quick else info.build(), measured=True), counts)


if __name__ == "__main__":
    main()
