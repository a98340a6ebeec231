"""``tvm-rammer tune``: TVM's tuner chooses the tiles of a model's operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.commands.sources import given_options, require_model, shared_options

if TYPE_CHECKING:
    from tvm_rammer.tuning.journal import Progress
    from tvm_rammer.tuning.status import TuningStatus

_EXAMPLES = """\b
Examples:
  tvm-rammer tune model.onnx -o records --trials 500
  tvm-rammer compile model.onnx -o model.so --database records
  tvm-rammer tune --status records
  tvm-rammer tune model.onnx -o records --tracker 10.0.0.1:9190 --key rpi5 --target "$RPI5"
"""


@click.command(
    "tune", cls=Command, short_help="Let TVM's tuner choose the tiles.", epilog=_EXAMPLES
)
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the records; what is there already counts.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Configurations to try in all, about half a second each.",
)
@click.option(
    "--status",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Tell how far the sessions of a folder are, and tune nothing.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --status: draw the plan's gain over the trials, as SVG.",
)
@click.option(
    "--tracker",
    metavar="HOST:PORT",
    help="Measure on the servers of this RPC tracker of TVM; --target says what they are. Anybody "
    "who reaches one can run code there: for trusted networks only.",
)
@click.option("--key", metavar="KEY", help="With --tracker: of the servers to measure on.")
@click.option(
    "--parallel",
    type=click.IntRange(1),
    metavar="N",
    help="With --tracker: servers to use at a time; all if not given.",
)
@click.option(
    "--space",
    type=click.Choice(["template", "sketch", "both"]),
    default="template",
    show_default=True,
    help="Where configurations come from: lists of the templates, MetaSchedule's own rules for "
    "any operator, or both in turns.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the search.")
@shared_options("target", "num_veus", "shapes", "constants")
def command(
    model: Path | None,
    output: Path | None,
    trials: int,
    space: str,
    seed: int,
    status: Path | None,
    plot: Path | None,
    tracker: str | None,
    key: str | None,
    parallel: int | None,
    **options: Any,
) -> Result:
    """Tune the operators of MODEL by measuring, on this machine or on those of a tracker.

    What is made without tuning is measured first, and whatever looks better runs in turns with it,
    so that nothing gets slower. The same command goes on with the records of an interrupted one.
    """
    if status is not None:
        _refuse_beside_status()
        return _status(status, plot)
    if model is None or output is None:
        raise click.UsageError("give MODEL and -o DIR, or --status DIR")
    if plot is not None:
        raise click.UsageError("--plot goes with --status DIR")
    if tracker and not key:
        raise click.UsageError("--tracker HOST:PORT needs --key KEY")
    if (key or parallel) and not tracker:
        raise click.UsageError("--key and --parallel go with --tracker HOST:PORT")
    require_model(model)
    if tracker and key:
        from tvm_rammer.tuning.tracker import Tracker

        options["tracker"] = Tracker.parse(tracker, key, parallel)
    options["space"] = space
    return _tuned(model, output, trials, seed, options)


def _refuse_beside_status() -> None:
    """Raise a UsageError for what is given to tune, where nothing is tuned."""
    context = click.get_current_context()
    told = ("status", "plot", "as_json", "debug")
    for param in context.command.get_params(context):
        given = context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        if given and param.name not in told:
            shown = param.opts[-1] if isinstance(param, click.Option) else "MODEL"
            raise click.UsageError(f"{shown} does not go with --status DIR, which tunes nothing")


def _tuned(model: Path, output: Path, trials: int, seed: int, options: dict[str, Any]) -> Result:
    from tvm_rammer.commands.native_work import progress
    from tvm_rammer.tuning.status import tuning_status
    from tvm_rammer.units import counted

    with progress(bar=True) as display:
        task = display.add_task(f"tuning {model.name}: reading it", total=trials)

        def watch(now: Progress) -> None:
            display.update(
                task,
                completed=min(now.trials, trials),
                description=f"tuning {model.name}: plan {now.plan_gain:.2f}x, {now.task} "
                f"{now.gain:.2f}x, {_left(now.seconds_left)}",
            )

        from tvm_rammer.tuning.model import tune

        database = tune(
            model, trials=trials, work_dir=output, seed=seed, watch=watch, **given_options(options)
        )
    measured = counted(len(database), "measurement")
    now = tuning_status(output)
    return Result(
        {
            "model": str(model),
            "records": str(output),
            "measured": len(database),
            "skipped": database.skipped,
            **_document(now),
        },
        (
            f"{output}: {measured}",
            "",
            *_texts(now),
            "",
            f"tvm-rammer compile {model} -o {model.stem}.so --database {output}",
        ),
    )


def _status(folder: Path, plot: Path | None) -> Result:
    from tvm_rammer.commands.files import write_file
    from tvm_rammer.tuning.status import tuning_status
    from tvm_rammer.view.gain_svg import gain_svg

    now = tuning_status(folder)
    if plot is not None:
        write_file(plot, gain_svg(now.gains, f"{folder.name}: gain of the plan"))
    words = "a process is tuning" if now.running else "no process is tuning"
    left = _left(now.seconds_left) if now.running else "trials done"
    return Result(
        {"records": str(folder), "running": now.running, **_document(now)},
        (
            f"{folder}: {words}, {now.trials:,} of {now.of_trials:,}, {left}",
            "",
            *_texts(now),
        ),
    )


def _document(now: TuningStatus) -> dict[str, Any]:
    return {
        "trials": now.trials,
        "of_trials": now.of_trials,
        "plan_gain": now.plan_gain,
        "operators": [
            {
                "name": each.name,
                "best_seconds": each.best,
                "untuned_seconds": each.untuned,
                "gain": each.gain,
            }
            for each in now.operators
        ],
        "failures": list(now.failures),
        "notes": list(now.notes),
        "gains": [list(each) for each in now.gains],
        "network": now.network,
    }


def _texts(now: TuningStatus) -> list[Any]:
    """The gain of the plan, a table of operators, and what failed."""
    from tvm_rammer.commands.render import columns
    from tvm_rammer.units import duration, listed

    table = columns("operator", "untuned", "now", "gain", right=(1, 2, 3))
    for each in now.operators:
        table.add_row(each.name, duration(each.untuned), duration(each.best), f"{each.gain:.2f}x")
    texts: list[Any] = [f"the plan is expected to be {now.plan_gain:.2f}x as fast", "", table]
    if now.network:
        texts += ["", now.network]
    if now.failures:
        texts += ["", f"failed: {listed(now.failures, 4)}"]
    return texts


def _left(seconds: float | None) -> str:
    if seconds is None or seconds == float("inf"):
        return "time left unknown"
    return f"{seconds / 60:.0f} min left" if seconds >= 60 else f"{seconds:.0f} s left"
