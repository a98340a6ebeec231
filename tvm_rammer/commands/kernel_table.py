"""``tvm-rammer show --kernels``: what every kernel reaches of what the machine allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from tvm_rammer.commands.command import Result
from tvm_rammer.commands.render import facts
from tvm_rammer.commands.sources import require_model
from tvm_rammer.errors import InputError
from tvm_rammer.units import counted, duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

    from tvm_rammer.runtime.kernel_report import KernelFacts, KernelReport

#: Without --all, kernels beyond this many are one line.
_MOST_KERNELS = 40
#: Columns of text from which on all columns of the table have room.
_WIDE = 100
_LIMITS = {"l1": "L1", "l2": "L2", "l3": "L3", "dram": "memory"}
_LEGEND = (
    "uses: operators with this kernel, the first is named; time of one use on one core, ± its "
    "spread; share of all uses; GB/s of what it must read and write; peak: of the core's GFLOP/s; "
    "roof: of the speed that its operations and bytes allow, and which of them limits it"
)

#: A kernel that takes this much longer than its roofline is far from it, or near.
_FAR, _NEAR = 2.0, 1.15


def show_kernels(model: Path, show_all: bool, options: dict[str, Any]) -> Result:
    """Measure the kernels of a model.

    Parameters
    ----------
    model : Path
        A file that can be compiled.
    show_all : bool
        List all kernels, however many.
    options : dict
        What is given for compiling; the plan's own are refused, as kernels do not depend on them.
    """
    for name in ("policy", "form"):
        if options.pop(name) is not None:
            raise InputError(f"--{name} does not change the kernels; leave it out with --kernels")
    require_model(model)
    report = _measured(model, options)
    if not report.kernels:
        raise InputError(f"{model}: nothing was planned, there are no kernels to show")
    return Result(
        {"model": str(model), **report.to_dict()},
        (
            _KernelTable(report, None if show_all else _MOST_KERNELS),
            "",
            facts([*_totals(report), ("columns", _LEGEND)]),
        ),
    )


def _measured(model: Path, options: dict[str, Any]) -> KernelReport:
    from tvm_rammer.commands.native_work import progress
    from tvm_rammer.commands.sources import REPEATED, given_options
    from tvm_rammer.frontend.several_shapes import joined, load_several
    from tvm_rammer.options import Options
    from tvm_rammer.runtime.kernel_report import kernel_report
    from tvm_rammer.transform.pipeline import partition_module

    given = given_options(options)
    with progress(bar=True) as display:
        task = display.add_task(f"reading {model.name}", total=None)
        target, records = given.pop("target", None), given.pop("database", None)
        inputs = {name: given.pop(name) for name in REPEATED if name in given}
        goal = Options(**given).resolve(target)
        module, _ = joined(load_several(model, **inputs))
        partitions = partition_module(module, goal, records)

        def advance(done: int, total: int) -> None:
            display.update(task, description="measuring kernels", completed=done, total=total)

        return kernel_report(partitions.merged_for(goal.vdevice), partitions.compiler, advance)


@dataclass(frozen=True)
class _KernelTable:
    """One line for a kernel: numbers of fixed width first, names as far as there is room."""

    report: KernelReport
    limit: int | None

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Table]:
        columns = [c for c in _COLUMNS if not c.wide or options.max_width >= _WIDE]
        table = Table(
            box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), show_edge=False
        )
        for column in columns:
            table.add_column(column.heading, justify=column.justify, no_wrap=True)
        # The only one that may become narrower; its cells keep to one line.
        table.add_column("operator, tile", min_width=14)
        for kernel in self.report.kernels[: self.limit]:
            cells = [column.cell(kernel, self.report) for column in columns]
            table.add_row(*cells, _operator(kernel))
        if self.limit is not None and (others := self.report.kernels[self.limit :]):
            rest = {
                "uses": str(sum(kernel.count for kernel in others)),
                "share": f"{sum(k.total_seconds for k in others) / self.report.seconds:.1%}",
                "kernel": f"{len(others)} more",
            }
            table.add_row(*(rest.get(column.heading, "") for column in columns), style="dim")
        yield table


@dataclass(frozen=True)
class _Column:
    """A column of the table; one that is ``wide`` only where there is room for it."""

    heading: str
    cell: Callable[[KernelFacts, KernelReport], str | Text]
    justify: Literal["left", "right"] = "right"
    wide: bool = False


_COLUMNS = (
    _Column("uses", lambda kernel, _: str(kernel.count)),
    _Column("time", lambda kernel, _: duration(kernel.seconds)),
    _Column("±", lambda kernel, _: _spread(kernel), wide=True),
    _Column("share", lambda kernel, report: f"{kernel.total_seconds / report.seconds:.1%}"),
    _Column(
        "GFLOP/s", lambda kernel, _: f"{_flops(kernel) / 1e9:.1f}" if kernel.work.flops else ""
    ),
    _Column(
        "GB/s", lambda kernel, _: f"{kernel.work.nbytes / kernel.seconds / 1e9:.1f}", wide=True
    ),
    _Column("peak", lambda kernel, report: _of_peak(kernel, report)),
    _Column("roof", lambda kernel, _: _of_roofline(kernel)),
    _Column("limit", lambda kernel, _: _limit(kernel), "left"),
    _Column(
        "kernel",
        lambda kernel, _: Text(kernel.kernel.origin, style="yellow" if kernel.fallback else ""),
        "left",
    ),
    _Column("rTasks", lambda kernel, _: str(kernel.kernel.num_tiles), wide=True),
)


def _operator(kernel: KernelFacts) -> Text:
    """The first operator with a kernel, and its tile."""
    text = Text(no_wrap=True, overflow="ellipsis")
    if kernel.missed:
        text.append(f"{kernel.missed} ", "bold red")
    return text.append(f"{kernel.operator}  ").append(kernel.kernel.tiling, "dim")


def _flops(kernel: KernelFacts) -> float:
    return kernel.work.flops / kernel.seconds


def _spread(kernel: KernelFacts) -> Text:
    return Text(f"{min(kernel.timing.spread, 9.99):.0%}" if kernel.timing else "model", "dim")


def _of_peak(kernel: KernelFacts, report: KernelReport) -> str:
    if not report.ceilings or not kernel.work.flops:
        return ""
    return f"{_flops(kernel) / report.ceilings.flops:.0%}"


def _limit(kernel: KernelFacts) -> Text:
    limit = kernel.roof.limit if kernel.roof else ""
    return Text(_LIMITS.get(limit, limit), "dim")


def _of_roofline(kernel: KernelFacts) -> Text:
    """How near a kernel comes to the least time it could take."""
    if kernel.roof is None or not kernel.roof.seconds:
        return Text()
    times = kernel.seconds / kernel.roof.seconds
    style = "green" if times <= _NEAR else "red" if times > _FAR else "yellow"
    return Text(f"{1 / times:.0%}", style=style)


def _totals(report: KernelReport) -> list[tuple[str, Any]]:
    operators = sum(kernel.count for kernel in report.kernels)
    how = "measured" if report.vdevice.host else "modelled for another machine"
    rows: list[tuple[str, Any]] = [
        (
            "kernels",
            f"{duration(report.seconds)} on one core, {how}: "
            f"{counted(operators, 'operator')} with {counted(len(report.kernels), 'kernel')}",
        )
    ]
    if report.roofline_seconds:
        times = report.seconds / report.roofline_seconds
        rows.append(("roofline", f"{duration(report.roofline_seconds)}; the kernels {times:.2f}x"))
    if report.ceilings:
        reached = report.ceilings
        rows.append(
            (
                "one core",
                f"{reached.flops / 1e9:.0f} GFLOP/s; read GB/s: L1 {reached.l1 / 1e9:.0f}, "
                f"L2 {reached.l2 / 1e9:.0f}, L3 {reached.l3 / 1e9:.0f}, "
                f"memory {reached.dram / 1e9:.0f}",
            )
        )
    if fallbacks := [kernel for kernel in report.kernels if kernel.fallback]:
        share = sum(kernel.total_seconds for kernel in fallbacks) / report.seconds
        count = sum(kernel.count for kernel in fallbacks)
        rows.append(("no template", f"{counted(count, 'operator')}, {share:.1%} of the time"))
    if missed := [kernel for kernel in report.kernels if kernel.missed]:
        reasons = ", ".join(dict.fromkeys(str(kernel.missed) for kernel in missed))
        count = sum(kernel.count for kernel in missed)
        rows.append(("vectors", Text(f"missed by {counted(count, 'operator')}: {reasons}", "red")))
    if report.left_out:
        rows.append(("left out", f"{counted(report.left_out, 'operator')}, not listed here"))
    return rows
