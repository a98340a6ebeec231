#!/usr/bin/env python3
"""Measure what single decisions are worth, model by model.

    python python/ablations.py --json docs/results/ablations.json
    python python/ablations.py --models lstm_8x8x256,inception_v3 --quick

Policies against each other, barriers against point-to-point waits, Winograd off, fewer vEUs: plans
of the same compiled kernels take turns in one process. A model that fails is reported, and the
others go on; with --json what is in the file is not done again.
"""

from __future__ import annotations

from pathlib import Path

import click
from bench.ablation_tables import TABLES
from bench.console_table import console_answers
from bench.findings import FindingsSetting, chosen_models
from bench.study import STUDIES, Study, study
from rich.console import Console

from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model

SCRIPT = "python/ablations.py"


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--seconds", default=6.0, show_default=True, help="Of timing for a model.")
@click.option("--patience", default=60.0, show_default=True, help="Seconds for quiet cores.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, seconds: float, patience: float, quick: bool, json_path: Path | None) -> None:
    """Measure what single decisions are worth."""
    console = Console()
    try:
        chosen = chosen_models(models)
        found = STUDIES.resume(json_path, FindingsSetting(quick))
        found.find_all(SCRIPT, chosen, json_path, "studying", studied, quick, seconds, patience)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    studies = found.of(chosen)
    for table in console_answers(TABLES, studies):
        console.print(table)
    found.print_failed(console, chosen)


def studied(name: str, quick: bool, seconds: float, patience: float) -> Study:
    """Study a model."""
    info = get_model(name)
    return study(info.tiny() if quick else info.build(), seconds, patience)


if __name__ == "__main__":
    main()
