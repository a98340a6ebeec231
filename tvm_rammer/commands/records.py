"""``tvm-rammer records``: records of the tuner put together, filtered, and written to travel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.errors import InputError

if TYPE_CHECKING:
    from tvm_rammer.tuning.database import Database

_EXAMPLES = """\b
Examples:
  tvm-rammer records records
  tvm-rammer records mine yours -o ours
  tvm-rammer records ours --device EPYC --needed -o epyc.json
"""


@click.command(
    "records", cls=Command, short_help="Merge, filter and export records.", epilog=_EXAMPLES
)
@click.argument("databases", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for the records, or a file if it ends in .json; nothing is written if not given.",
)
@click.option("--device", metavar="TEXT", help="Only records of devices with this in their name.")
@click.option("--here", is_flag=True, help="Only records for this machine and this TVM.")
@click.option("--needed", is_flag=True, help="Only choices that a build takes: a small file.")
def command(
    databases: tuple[Path, ...], output: Path | None, device: str | None, here: bool, needed: bool
) -> Result:
    """Put the records of DATABASES together, folders or files of tvm-rammer tune."""
    from tvm_rammer.backend import vdevice_for
    from tvm_rammer.commands.render import columns
    from tvm_rammer.tuning.collect import collected, counts_by_origin, write_lines
    from tvm_rammer.tuning.database import Database
    from tvm_rammer.tuning.task import TaskOrigin
    from tvm_rammer.units import counted

    opened = [Database(path) for path in databases]
    ours = TaskOrigin.of(vdevice_for()) if here else None

    def keep(origin: TaskOrigin) -> bool:
        named = device is None or device.lower() in origin.device.lower()
        return named and (ours is None or origin == ours)

    lines = collected(opened, keep, needed)
    counts = counts_by_origin(lines)
    nothing = "" if counts else _nothing_left(opened, device, here, needed)
    if output is not None:
        if nothing:
            raise InputError(f"{output}: not written, {nothing}")
        write_lines(lines, output)
    table = columns("device", "TVM", "operators", "measurements", "races", right=(2, 3, 4))
    for each in counts:
        numbers = (each.operators, each.measurements, each.races)
        table.add_row(each.origin.device, each.origin.version, *(f"{n:,}" for n in numbers))
    skipped = [f"{each.folder}: {line}" for each in opened for line in each.skipped]
    written = f"written to {output}" if output else nothing or "nothing was written: give -o"
    return Result(
        {
            "output": str(output) if output else None,
            "origins": [
                {
                    "device": each.origin.device,
                    "tvm": each.origin.version,
                    "operators": each.operators,
                    "measurements": each.measurements,
                    "races": each.races,
                }
                for each in counts
            ],
            "skipped": skipped,
        },
        (
            table,
            "",
            written,
            *([f"left out: {counted(len(skipped), 'line')}"] if skipped else []),
        ),
    )


def _nothing_left(
    databases: Sequence[Database], device: str | None, here: bool, needed: bool
) -> str:
    """Why there is nothing to write, and what the records there are of."""
    from tvm_rammer.tuning.collect import collected, counts_by_origin
    from tvm_rammer.units import listed

    there = [each.origin.source for each in counts_by_origin(collected(databases, lambda _: True))]
    if not there:
        return "there are no records of any operator"
    named = [f"--device {device!r}"] if device is not None else []
    given = [*named, *(["--here"] if here else []), *(["--needed"] if needed else [])]
    return f"no record matches {' '.join(given)}; there are those of {listed(there)}"
