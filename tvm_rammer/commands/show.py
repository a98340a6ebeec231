"""``tvm-rammer show``: the plan of a model or a library, as text, pictures or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.commands.files import require_writable, write_file
from tvm_rammer.commands.plan_file import read_plan
from tvm_rammer.commands.sources import build_options, open_described
from tvm_rammer.errors import InputError

if TYPE_CHECKING:
    from tvm_rammer.rprogram import RProgram
    from tvm_rammer.runtime.description import LibraryDescription
    from tvm_rammer.runtime.library import Library
    from tvm_rammer.runtime.profile import Profile
    from tvm_rammer.runtime.report import Report
    from tvm_rammer.schedule import Timeline

    Plans = Sequence[tuple[RProgram, Timeline]]

_EXAMPLES = """\b
Examples:
  tvm-rammer show squeezenet.onnx
  tvm-rammer show model.so --html plan.html --trace plan.trace.json
  tvm-rammer show model.onnx --policy sequential --svg plan.svg
  tvm-rammer show model.so --measured --html plan.html
  tvm-rammer show model.so --json > plan.json
  tvm-rammer show plan.json
  tvm-rammer show model.onnx --kernels
"""

_file = click.Path(path_type=Path)


@click.command(
    "show", cls=Command, short_help="Show how a model or a library is planned.", epilog=_EXAMPLES
)
@click.argument("source", metavar="MODEL|LIBRARY|PLAN", type=_file)
@click.option("--html", type=_file, metavar="FILE", help="Timeline that zooms, one HTML page.")
@click.option("--trace", type=_file, metavar="FILE", help="Timeline for ui.perfetto.dev.")
@click.option("--svg", type=_file, metavar="FILE", help="Timeline as a picture.")
@click.option("--all", "show_all", is_flag=True, help="List all rTasks, however many.")
@click.option(
    "--kernels", is_flag=True, help="Show no plan: measure every kernel against the machine."
)
@click.option("--measured", is_flag=True, help="Run it, and show when every rTask really ran.")
@build_options
def command(
    source: Path,
    html: Path | None,
    trace: Path | None,
    svg: Path | None,
    show_all: bool,
    kernels: bool,
    measured: bool,
    **options: Any,
) -> Result:
    """Show how a model or a library is planned.

    The times are simulated from the costs of the kernels; with --measured, those of a run on
    random inputs stand beside them. PLAN is what --json printed: it is proved safe again before it
    is shown. With --kernels, every kernel of a MODEL is compiled by itself, timed on one core, and
    compared with the least time that the core needs for the same operations and bytes.
    """
    wanted = {"html": html, "trace": trace, "svg": svg}
    files = {kind: path for kind, path in wanted.items() if path is not None}
    if kernels:
        from tvm_rammer.commands.kernel_table import show_kernels

        if files:
            raise InputError(f"--{next(iter(files))} draws a plan; leave it out with --kernels")
        if measured:
            raise InputError("--measured runs a plan; leave it out with --kernels")
        if source.suffix == ".so" or read_plan(source) is not None:
            what = "library" if source.suffix == ".so" else "plan"
            raise InputError(
                f"{source}: a {what} holds no kernels to take apart; give --kernels the model"
            )
        return show_kernels(source, show_all, options)
    _require_apart({"source": source, **files})
    for path in files.values():
        require_writable(path)
    library, description, report = open_described(source, **options)
    from tvm_rammer.runtime.description import simulated

    plans = simulated(description)
    profiles = _profiles(source, library) if measured else []
    if files and not plans:
        raise InputError(f"{source}: nothing was planned, there is no timeline to draw")
    ran = [(profile.program, profile.timeline) for profile in profiles]
    for kind, path in files.items():
        write_file(path, _draw(kind, [*plans, *ran], source.name))
    return Result(
        _document(description, report, plans, files) | {"measured": _measured(profiles)},
        tuple(_text(description, report, plans, profiles, files, None if show_all else 60)),
    )


def _profiles(source: Path, library: Library | None) -> list[Profile]:
    """A run on random inputs of all shapes, measured; nothing where nothing was planned."""
    import numpy as np

    from tvm_rammer.commands.native_work import native_work
    from tvm_rammer.commands.tensor_files import random_input

    if library is None:
        raise InputError(f"{source}: a plan cannot be run; give --measured the model or a library")
    if not library.programs:
        return []
    with native_work(f"running {source.name}"):
        module = library.create()
        generator = np.random.default_rng(0)
        profiles = []
        for interface in library.description.interfaces:
            for info in interface.inputs:
                module.set_input(info.name, random_input(info, generator).value)
            profiles.append(module.profile())
        return profiles


def _measured(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    return [
        {
            "program": profile.program.name,
            "makespan_seconds": profile.timeline.makespan,
            "utilisation": profile.timeline.utilisation,
            "run_seconds": profile.plain_seconds,
            "overhead": profile.overhead,
        }
        for profile in profiles
    ]


def _require_apart(files: dict[str, Path]) -> None:
    """Raise an InputError if one of the files that are written is another one of the call."""
    seen: dict[Path, str] = {}
    for kind, path in files.items():
        place = path.resolve()
        if place in seen:
            other = "what is shown" if seen[place] == "source" else f"--{seen[place]}"
            raise InputError(f"{path}: --{kind} would overwrite {other}; give another file")
        seen[place] = kind


def _draw(kind: str, plans: Plans, title: str) -> str:
    from tvm_rammer.view import timeline_html, timeline_svg

    programs, timelines = [plan for plan, _ in plans], [timeline for _, timeline in plans]
    if kind == "html":
        return timeline_html(programs, timelines, title)
    if kind == "svg":
        return timeline_svg(programs, timelines, title)
    return json.dumps(_trace(plans))


def _trace(plans: Plans) -> dict[str, Any]:
    """All regions in one trace, each as a process."""
    from tvm_rammer.view import chrome_trace

    traces = [chrome_trace(program, timeline) for program, timeline in plans]
    events = [
        {**event, "pid": number, **({"id": f"{number}.{event['id']}"} if "id" in event else {})}
        for number, trace in enumerate(traces, 1)
        for event in trace["traceEvents"]
    ]
    return {**traces[0], "traceEvents": events}


def _document(
    description: LibraryDescription, report: Report, plans: Plans, files: dict[str, Path]
) -> dict[str, Any]:
    from tvm_rammer.schedule import bounds

    return {
        **description.content,
        "report": report.to_dict(),
        "simulated": [
            {
                "program": program.name,
                "makespan_seconds": timeline.makespan,
                "lower_bound_seconds": bounds(program).makespan,
                "utilisation": timeline.utilisation,
            }
            for program, timeline in plans
        ],
        "files": {kind: str(path) for kind, path in files.items()},
    }


def _text(
    description: LibraryDescription,
    report: Report,
    plans: Plans,
    profiles: Sequence[Profile],
    files: dict[str, Path],
    limit: int | None,
) -> list[Any]:
    from tvm_rammer.commands.render import (
        description_facts,
        facts,
        left_out,
        report_facts,
        timeline,
    )
    from tvm_rammer.rprogram import format_program

    parts: list[Any] = [format_program(program, limit) for program, _ in plans]
    parts.append(facts([*description_facts(description), *report_facts(report)]))
    for program, times in plans:
        parts += ["", timeline(program, times)]
    for profile in profiles:
        parts += ["", timeline(profile.program, profile.timeline)]
        parts.append(facts([("measured", profile.cost())]))
    if (remaining := left_out(report)) is not None:
        parts += ["", remaining]
    if files:
        parts += ["", facts([(kind, path) for kind, path in files.items()])]
    return parts
