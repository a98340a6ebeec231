#!/usr/bin/env python3
"""Simulate every policy on the model zoo: speed-up over sequential at several numbers of vEUs.

    python python/compare_policies.py --json docs/results/scaling.json
    python python/compare_policies.py --models lstm_8x8x256,inception_v3 --veus 2,16
    python python/compare_policies.py --machine epyc-7r13-2s --veus 16,64

Plans for 64 vEUs can be studied on two cores: nothing is run. Kernels that were never measured on
this machine are, by the CPU time of one thread, which other work disturbs little. With --machine
the cores are this machine's, and what lies how far from what is that machine's. With --json what is
in the file is not done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from bench.console_table import console_answers, console_table
from bench.findings import FindingsSetting, chosen_models, numbers_of_veus
from bench.machine_option import described_veus, machine_option
from bench.scaling import SCALINGS, Scaling, scaling
from bench.scaling_tables import TABLES, policy_columns, policy_rows
from rich.console import Console

from tvm_rammer.backend import vdevice_for
from tvm_rammer.errors import RammerError
from tvm_rammer.machine.described_machine import DescribedMachine
from tvm_rammer.testing.models import get_model

SCRIPT = "python/compare_policies.py"


@click.command()
@click.option("--models", default="", help="Names, separated by commas; all unless given.")
@click.option("--veus", default="2,4,8,16,64", show_default=True, help="Numbers of vEUs.")
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
@machine_option
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    models: str,
    veus: str,
    quick: bool,
    described: DescribedMachine | None,
    json_path: Path | None,
) -> None:
    """Compare the policies by simulation."""
    console = Console()
    try:
        chosen, counts = chosen_models(models), numbers_of_veus(veus, "2,4,8")
        if described is not None:
            described_veus(described, vdevice_for(), max(counts))
        name = described.name if described is not None else ""
        setting = FindingsSetting(quick, counts, name)
        results = SCALINGS.resume(json_path, setting)
        results.find_all(
            SCRIPT, chosen, json_path, "simulating", simulated, quick, counts, described
        )
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    shown = results.of(chosen)
    for name, found in shown.items():
        title = f"{name}, {found.operators:,} operators: simulated speed-up over sequential"
        console.print(console_table(title, policy_columns(found), policy_rows(found)))
    for table in console_answers(TABLES, shown):
        console.print(table)
    results.print_failed(console, chosen)


def simulated(
    name: str, quick: bool, counts: Sequence[int], described: DescribedMachine | None
) -> Scaling:
    """Simulate a model."""
    info = get_model(name)
    return scaling(info.tiny() if quick else info.build(), counts, described)


if __name__ == "__main__":
    main()
