"""``tvm-rammer doctor``: is this machine set up well?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from tvm_rammer.backend import Finding

_EXAMPLES = """\b
Examples:
  tvm-rammer doctor
  tvm-rammer doctor --calibrate
  tvm-rammer doctor --clear-cache
  tvm-rammer doctor --json
"""

_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


@click.command("doctor", cls=Command, short_help="Is this machine set up well?", epilog=_EXAMPLES)
@click.option("--calibrate", is_flag=True, help="Measure the synchronisation costs again.")
@click.option("--clear-cache", is_flag=True, help="Forget what was measured, and look at nothing.")
def command(calibrate: bool, clear_cache: bool) -> Result:
    """Look at everything here that makes programs wrong or slow, and say what to do about it.

    The first time it measures what synchronising costs, and keeps that for later plans. Exit
    status 1 if something does not work.
    """
    if clear_cache:
        return _cleared()
    from tvm_rammer.commands.native_work import native_work

    with native_work("looking at this machine"):
        from tvm_rammer.backend.diagnose import diagnose

        findings = diagnose(calibrate)
    bad = any(finding.level == "bad" for finding in findings)
    document = {"ok": not bad, "findings": [asdict(finding) for finding in findings]}
    return Result(document, (_table(findings), "", _summary(findings)), exit_code=int(bad))


def _cleared() -> Result:
    from tvm_rammer.machine.cache import cache_directory, clear_cache
    from tvm_rammer.units import counted

    folder = cache_directory()
    try:
        removed = clear_cache()
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be removed: {error.strerror}; remove it yourself"
        ) from error
    text = f"removed {counted(len(removed), 'file')} of measurements from {folder}"
    return Result({"cache": str(folder), "removed": list(map(str, removed))}, (text,))


def _table(findings: Sequence[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 0, 0, 2), pad_edge=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        style = _STYLES[finding.level]
        value = Text(finding.value)
        if finding.advice:
            value.append(f"\n{finding.advice}", style=style)
        table.add_row(Text(finding.level, style=style), finding.topic, value)
    return table


def _summary(findings: Sequence[Finding]) -> Text:
    from rich.text import Text

    from tvm_rammer.units import counted

    levels: list[Any] = [finding.level for finding in findings]
    bad, warn = levels.count("bad"), levels.count("warn")
    if bad:
        return Text(
            f"  {counted(bad, 'thing')} to put right before anything else", style="bold red"
        )
    if warn:
        return Text(f"  works; {counted(warn, 'thing')} could be better", style="yellow")
    return Text("  all is well", style="bold green")
