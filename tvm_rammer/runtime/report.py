"""What a build decided, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvm_rammer.printable import printable
from tvm_rammer.region.library_content import shapes_text
from tvm_rammer.region.marks import LeftOut
from tvm_rammer.rprogram import RProgram
from tvm_rammer.runtime.description import LibraryDescription
from tvm_rammer.schedule import Decision, Explanation, memory_report
from tvm_rammer.units import counted, duration, size

#: A body that takes the back end longer is named: most take a tenth of a second.
SLOW_SECONDS = 5.0


@dataclass(frozen=True)
class RegionReport:
    """One planned region.

    Attributes
    ----------
    shapes : str
        The inputs that it is for, of a library for several shapes.
    operators, tasks, waves, waits : int
        Counts of the plan.
    width : int
        Most operators that a wavefront holds.
    arena_bytes : int
        Memory for intermediate results in the plan.
    intermediate_bytes : int
        Sum of all intermediate results: what no reuse would take.
    peak_bytes : int
        Most bytes that are live at once when the plan runs in order: no plan takes less.
    stock_bytes : int, optional
        What TVM's own memory planner allocates for the same operators, one after the other; only
        known where the library was built.
    constant_bytes : int
        Weights, packed.
    kernels : dict of str to int
        Operators by the rule that made their kernel.
    explanation : Explanation
        What limits the plan.
    decision : Decision, optional
        Why it is this plan; None if the user chose the policy.
    notes : tuple of (str, str)
        Operators, and what there is to say of their kernels besides.
    """

    name: str
    policy: str
    num_veus: int
    operators: int
    tasks: int
    waves: int
    waits: int
    width: int
    arena_bytes: int
    intermediate_bytes: int
    peak_bytes: int
    stock_bytes: int | None
    constant_bytes: int
    kernels: dict[str, int]
    explanation: Explanation
    decision: Decision | None
    notes: tuple[tuple[str, str], ...] = ()
    shapes: str = ""

    @property
    def title(self) -> str:
        """Its name, and what it is for."""
        return f"{self.name} ({self.shapes})" if self.shapes else self.name

    def reasons(self) -> list[tuple[str, str]]:
        """Why it is this plan, and what limits it: pairs of a heading and a sentence."""
        why = self.explanation
        found = [] if self.decision is None else [("policy", _decided(self.decision))]
        bandwidth = f", bandwidth {duration(why.traffic)}" if why.traffic else ""
        limit = (
            f"{why.limit}: {duration(why.predicted)} predicted; lower bounds: critical path "
            f"{duration(why.critical_path)}, work {duration(why.work)}{bandwidth}"
        )
        overlap = (
            f"{why.co_scheduled} of {counted(why.operators, 'operator')} "
            f"{'runs' if why.co_scheduled == 1 else 'run'} beside another"
        )
        if why.co_scheduled:
            overlap = f"{overlap}, for {why.overlap:.0%} of the time"
        if why.inseparable:
            overlap = f"{overlap}; {why.inseparable} cannot: all others come before or after"
        return [*found, ("limit", limit), ("overlap", overlap)]

    def __str__(self) -> str:
        kernels = ", ".join(f"{count} {name}" for name, count in self.kernels.items())
        stock = "" if self.stock_bytes is None else f", TVM's plan {size(self.stock_bytes)}"
        return (
            f"{self.title}: {counted(self.operators, 'operator')} as "
            f"{counted(self.tasks, 'rTask')} in "
            f"{counted(self.waves, 'wave')} on {counted(self.num_veus, 'vEU')} ({self.policy}, "
            f"{counted(self.waits, 'wait')}, at most {counted(self.width, 'operator')} at once)\n"
            f"  arena {size(self.arena_bytes)} of {size(self.intermediate_bytes)} intermediate "
            f"results (live at once {size(self.peak_bytes)}{stock}), constants "
            f"{size(self.constant_bytes)}\n"
            f"  kernels: {kernels}\n"
            + "\n".join(f"  {heading}: {text}" for heading, text in self.reasons())
            + "".join(f"\n  note: {operator}: {text}" for operator, text in self.notes)
        )


@dataclass(frozen=True)
class SlowBody:
    """An rTask body that took the back end long: ``kernel``, first used by ``operator``."""

    kernel: str
    operator: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.operator}: its body {self.kernel} took {duration(self.seconds)}"


@dataclass(frozen=True)
class Report:
    """All regions of a library, and what is in none.

    ``merged_rows`` are those that products of one weight were merged to at most, 1 where none were;
    ``slow_to_compile`` is known where the library was built.
    """

    target: str
    vdevice: str
    num_veus: int
    regions: tuple[RegionReport, ...]
    left_out: tuple[LeftOut, ...]
    slow_to_compile: tuple[SlowBody, ...] = ()
    merged_rows: int = 1

    def __str__(self) -> str:
        lines = [f"compiled for {self.vdevice}, planned for {counted(self.num_veus, 'vEU')}"]
        lines += [str(region) for region in self.regions] or ["no region: nothing was planned"]
        if self.merged_rows > 1:
            lines.append(f"products with one weight are merged, up to {self.merged_rows} rows")
        lines += [f"slow to compile: {body}" for body in self.slow_to_compile]
        lines += [f"left out: {item.operator}: {item.reason}" for item in self.left_out]
        return printable("\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return asdict(self)


def make_report(
    description: LibraryDescription,
    stock_bytes: Mapping[str, int] | None = None,
    compile_seconds: Mapping[str, float] | None = None,
) -> Report:
    """Report on a library.

    Parameters
    ----------
    description : LibraryDescription
    stock_bytes : mapping of str to int, optional
        What TVM's memory planner needs for each region.
    compile_seconds : mapping of str to float, optional
        What the back end took for each body, by rKernel name.
    """
    known, shapes = stock_bytes or {}, _shapes(description)
    regions = [
        _region(
            program,
            known.get(name),
            description.explanations[name],
            description.decisions.get(name),
            shapes.get(name, ""),
        )
        for name, program in description.programs.items()
    ]
    return Report(
        description.target,
        description.vdevice,
        description.num_veus,
        tuple(regions),
        description.left_out,
        _slow_bodies(description, compile_seconds or {}),
        description.merged_rows,
    )


def _shapes(description: LibraryDescription) -> dict[str, str]:
    """Which inputs regions are for that are all of a function; of a function alone, nothing."""
    if len(description.interfaces) == 1:
        return {}
    return {
        interface.direct.region: shapes_text(interface)
        for interface in description.interfaces
        if interface.direct is not None
    }


def _slow_bodies(
    description: LibraryDescription, compile_seconds: Mapping[str, float]
) -> tuple[SlowBody, ...]:
    """The bodies of planned operators that took longer than they should, the slowest first."""
    users: dict[str, str] = {}
    for program in description.programs.values():
        for operator in program.operators:
            users.setdefault(program.kernels[operator.kernel].name, operator.name)
    slow = [(s, name) for name, s in compile_seconds.items() if s > SLOW_SECONDS and name in users]
    return tuple(SlowBody(name, users[name], s) for s, name in sorted(slow, reverse=True))


def _region(
    program: RProgram,
    stock_bytes: int | None,
    explanation: Explanation,
    decision: Decision | None,
    shapes: str,
) -> RegionReport:
    memory = memory_report(program)
    per_wave = Counter(
        wave for wave, _ in {(task.wave, task.operator) for _, _, task in program.tasks()}
    )
    rules = Counter(program.kernels[op.kernel].origin for op in program.operators)
    return RegionReport(
        program.name,
        program.policy,
        program.num_veus,
        len(program.operators),
        program.num_tasks,
        program.num_waves,
        sum(len(task.waits) for _, _, task in program.tasks()),
        max(per_wave.values(), default=0),
        memory.arena_bytes,
        memory.intermediate_bytes,
        memory.peak_bytes,
        stock_bytes,
        program.constant_bytes,
        dict(rules.most_common()),
        explanation,
        decision,
        tuple(_notes(program)),
        shapes,
    )


def _notes(program: RProgram) -> Iterator[tuple[str, str]]:
    """What there is to say of kernels, each with the first operator that has it."""
    known = set()
    for operator in program.operators:
        note = program.kernels[operator.kernel].note
        if note and operator.kernel not in known:
            yield operator.name, note
        known.add(operator.kernel)


def _decided(decision: Decision) -> str:
    """The chosen policy, why, and how that was found out."""
    how = {
        "measured": f"measured in {decision.seconds:.1f} s",
        "stored": "measured by an earlier build",
        "simulated": "simulated",
    }[decision.how]
    note = f"; {decision.note}" if decision.note else ""
    named = decision.reason.startswith(decision.chosen)
    reason = decision.reason if named else f"{decision.chosen}: {decision.reason}"
    return f"{reason} ({how}{note})"
