"""Pieces of text that several commands print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tvm_rammer.machine.target import target_text
from tvm_rammer.units import counted, dimensions, listed, size
from tvm_rammer.view import timeline_text

if TYPE_CHECKING:
    from tvm_rammer.region.library_content import Interface, TensorInfo
    from tvm_rammer.rprogram import RProgram
    from tvm_rammer.runtime.description import LibraryDescription
    from tvm_rammer.runtime.report import RegionReport, Report
    from tvm_rammer.schedule import Timeline

#: Of more reasons than this only the most frequent are listed.
_MOST_REASONS = 12


def facts(pairs: Sequence[tuple[str, Any]]) -> Table:
    """Names and values in two columns."""
    grid = Table.grid(padding=(0, 0, 0, 2), pad_edge=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, value if isinstance(value, Text | Table) else str(value))
    return grid


def columns(*headings: str, right: Sequence[int] = ()) -> Table:
    """An empty table: a line below the headings, nothing else."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 0, 0, 2), show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in right else "left", overflow="fold")
    return table


def timeline(program: RProgram, times: Timeline) -> Padding:
    """A timeline, as far from the left as the tables."""
    width = get_terminal_size().columns - 2
    return Padding(timeline_text(program, times, width), (0, 0, 0, 2))


def tensor(info: TensorInfo) -> str:
    """A tensor of the interface, e.g. ``data float32 1x3x224x224``."""
    return f"{info.name} {info.dtype} {dimensions(info.shape)}"


def description_facts(description: LibraryDescription) -> list[tuple[str, Any]]:
    """What a library is."""
    states = [state.tensor for state in description.states]
    return [
        *(fact for interface in description.interfaces for fact in _interface(interface)),
        *([("kept between runs", _tensors(states))] if states else []),
        ("target", target_text(description.target)),
        ("plan", f"{description.policy}, {_form(description)}"),
    ]


def _interface(interface: Interface) -> list[tuple[str, Any]]:
    return [("inputs", _tensors(interface.inputs)), ("outputs", _tensors(interface.outputs))]


def report_facts(report: Report) -> list[tuple[str, Any]]:
    """What was planned."""
    found: list[tuple[str, Any]] = []
    for region in report.regions:
        found += _region(region)
    found = found or [("region", "none: nothing was planned")]
    return [*found, *(("slow to compile", str(body)) for body in report.slow_to_compile)]


def left_out(report: Report) -> Table | None:
    """Operators that are in no plan, by reason; None if there are none."""
    if not report.left_out:
        return None
    reasons = Counter(item.reason for item in report.left_out)
    examples = {item.reason: item.operator for item in reversed(report.left_out)}
    table = columns("left out", "operators", "for example", right=(1,))
    for reason, count in reasons.most_common(_MOST_REASONS):
        table.add_row(reason, str(count), examples[reason])
    if len(reasons) > _MOST_REASONS:
        table.add_row(f"... {len(reasons) - _MOST_REASONS} more reasons", "", "")
    return table


def _region(region: RegionReport) -> list[tuple[str, Any]]:
    kernels = ", ".join(f"{count} {rule}" for rule, count in region.kernels.items())
    return [
        (
            "region",
            f"{region.title}: {counted(region.operators, 'operator')} as "
            f"{counted(region.tasks, 'rTask')} in {counted(region.waves, 'wave')} on "
            f"{counted(region.num_veus, 'vEU')}",
        ),
        (
            "",
            f"{counted(region.waits, 'wait')}, at most "
            f"{counted(region.width, 'operator')} at once; kernels: {kernels}",
        ),
        (
            "memory",
            f"arena {size(region.arena_bytes)} for {size(region.intermediate_bytes)} of "
            f"intermediate results, constants {size(region.constant_bytes)}",
        ),
        (
            "",
            f"live at once {size(region.peak_bytes)}"
            + (f", TVM's own plan {size(region.stock_bytes)}" if region.stock_bytes else ""),
        ),
        *region.reasons(),
    ]


def _tensors(infos: Sequence[TensorInfo]) -> str:
    return listed(map(tensor, infos), most=4)


def _form(description: LibraryDescription) -> str:
    forms = {
        "program": "one launch for a region",
        "wavefront": "one launch for each wavefront",
        "per-op": "one launch for each operator",
    }
    return f"{counted(description.num_veus, 'vEU')}, {forms[description.form]}"
