"""``tvm-rammer models``: the networks that are measured, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from tvm_rammer.testing.models import ModelInfo, ModelStatistics

_EXAMPLES = """\b
Examples:
  tvm-rammer models
  tvm-rammer models inception_v3 nasnet_large
  tvm-rammer models inception_v3 -o inception_v3.onnx
  tvm-rammer models lstm_8x8x256 --tiny -o lstm.onnx
"""


@click.command("models", cls=Command, short_help="Networks to try it on.", epilog=_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the model of that name as ONNX.",
)
@click.option("--tiny", is_flag=True, help="At the reduced size that the tests use.")
def command(names: tuple[str, ...], output: Path | None, tiny: bool) -> Result:
    """List the model zoo, or some models of it, with their size and their parallelism.

    Weights are random and the same each time. Parallelism is all work over the work on the
    longest path: the speed-up of infinitely many cores. The first list of all models takes a
    minute.
    """
    from tvm_rammer.testing.models import MODELS, get_model

    chosen = [get_model(name) for name in names or MODELS]
    if output is not None:
        if len(names) != 1:
            raise InputError(f"-o {output} takes the name of one model; {len(names)} are given")
        return _written(chosen[0], output, tiny)
    counted = _statistics(chosen, tiny)
    document = {
        name: {"description": info.description, **asdict(counted[name])}
        for name, info in ((info.name, info) for info in chosen)
    }
    table = _table(chosen, counted)
    if not names:
        return Result({"models": document}, (table, "", "tvm-rammer models NAME says what it is"))
    from tvm_rammer.commands.render import facts

    about = facts([(info.name, info.description) for info in chosen])
    return Result({"models": document}, (table, "", about))


def _written(info: ModelInfo, output: Path, tiny: bool) -> Result:
    from tvm_rammer.commands.files import require_writable, write_file
    from tvm_rammer.commands.native_work import native_work
    from tvm_rammer.units import size

    require_writable(output)
    with native_work(f"building {info.name}"):
        content = (info.tiny() if tiny else info.build()).SerializeToString()
        write_file(output, content)
    document = {"model": info.name, "path": str(output), "bytes": len(content)}
    reduced = ", at its reduced size" if tiny else ""
    text = f"wrote {output} ({size(len(content))}): {info.description}{reduced}"
    return Result(document, (text,))


def _statistics(chosen: list[ModelInfo], tiny: bool) -> Mapping[str, ModelStatistics]:
    from tvm_rammer.commands.native_work import progress
    from tvm_rammer.testing.models import known_statistics

    counted: dict[str, Any] = {}
    with progress(bar=True) as display:
        task = display.add_task("counting", total=len(chosen))
        for info in chosen:
            display.update(task, description=f"counting {info.name}")
            counted[info.name] = known_statistics(info, tiny)
            display.advance(task)
    return counted


def _table(chosen: list[ModelInfo], counted: Mapping[str, ModelStatistics]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for title in ("operators", "width", "depth", "parallelism", "GFLOP", "M weights"):
        table.add_column(title, justify="right", no_wrap=True)
    for info in chosen:
        found = counted[info.name]
        table.add_row(
            info.name,
            f"{found.operators:,}",
            f"{found.width:,}",
            f"{found.depth:,}",
            f"{found.parallelism:.1f}",
            f"{found.flops / 1e9:.3g}",
            f"{found.parameters / 1e6:.3g}",
        )
    return table
