"""``tvm-rammer tune``: TVM's tuner chooses the tiles of a model's operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.commands.sources import given_options, require_model, shared_options

if TYPE_CHECKING:
    from tvm_rammer.tuning.journal import Progress

_EXAMPLES = """\b
Examples:
  tvm-rammer tune model.onnx -o records --trials 500
  tvm-rammer compile model.onnx -o model.so --database records
"""


@click.command(
    "tune", cls=Command, short_help="Let TVM's tuner choose the tiles.", epilog=_EXAMPLES
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the records; what is there already counts.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Configurations to try, about half a second each.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the search.")
@shared_options("target", "num_veus", "shapes", "constants")
def command(model: Path, output: Path, trials: int, seed: int, **options: Any) -> Result:
    """Tune the operators of MODEL on this machine, by measuring.

    What is made without tuning is measured first, so that nothing gets slower. An interrupted
    session goes on with the records that it left.
    """
    from tvm_rammer.commands.native_work import progress
    from tvm_rammer.commands.render import facts
    from tvm_rammer.units import counted

    require_model(model)
    found: dict[str, Progress] = {}
    with progress(bar=True) as display:
        task = display.add_task(f"tuning {model.name}: reading it", total=trials)

        def watch(now: Progress) -> None:
            found[now.task] = now
            display.update(
                task,
                completed=min(now.trials, trials),
                description=f"tuning {model.name}: {now.task}, {now.gain:.2f}x",
            )

        from tvm_rammer.tuning.model import tune

        database = tune(
            model, trials=trials, work_dir=output, seed=seed, watch=watch, **given_options(options)
        )
    measured = counted(len(database), "measurement")
    operators = sorted(found.values(), key=lambda each: -each.gain)
    return Result(
        {
            "model": str(model),
            "records": str(output),
            "measured": len(database),
            "skipped": database.skipped,
            "operators": [
                {
                    "name": each.task,
                    "best_seconds": each.best,
                    "untuned_seconds": each.untuned,
                    "gain": each.gain,
                }
                for each in operators
            ],
        },
        (
            f"{output}: {measured} of {counted(len(found), 'operator')}",
            "",
            facts([(each.task, _words(each)) for each in operators]),
            "",
            f"tvm-rammer compile {model} -o {model.stem}.so --database {output}",
        ),
    )


def _words(found: Progress) -> str:
    from tvm_rammer.units import duration

    return f"{duration(found.untuned)} -> {duration(found.best)}, {found.gain:.2f}x"
