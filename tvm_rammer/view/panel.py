"""A panel: one timeline with the rProgram that it is of, checked to fit each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from tvm_rammer.errors import InputError
from tvm_rammer.rprogram.program import RProgram, RTask
from tvm_rammer.schedule.timeline import Span, Timeline
from tvm_rammer.view.families import Family, family_of


@dataclass(frozen=True)
class Panel:
    """What every view draws: when and where the rTasks of a program ran.

    Attributes
    ----------
    program : RProgram
    timeline : Timeline
    named : bool
        Whether its label names the program, as others are drawn beside it.
    """

    program: RProgram
    timeline: Timeline
    named: bool = False

    @property
    def label(self) -> str:
        """The policy and where the times come from."""
        name = f"{self.program.name}, " if self.named else ""
        return f"{name}{self.program.policy}, {self.timeline.source}"

    @cached_property
    def veus(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of each vEU by time; a vEU that ran nothing has none."""
        found: list[list[Span]] = [[] for _ in self.program.veus]
        for span in self.timeline.spans:
            found[span.veu].append(span)
        return tuple(tuple(sorted(v, key=lambda s: (s.start, s.position))) for v in found)

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The family of each operator."""
        program = self.program
        return tuple(family_of(program, number) for number in range(len(program.operators)))

    def task(self, span: Span) -> RTask:
        """The rTask that a span is of."""
        return self.program.veus[span.veu][span.position]


def make_panels(
    program: RProgram | Sequence[RProgram], timelines: Sequence[Timeline]
) -> tuple[Panel, ...]:
    """Pair timelines with their programs.

    Parameters
    ----------
    program : RProgram or sequence of RProgram
        The program of all timelines, or one for each.
    timelines : sequence of Timeline

    Raises
    ------
    InputError
        If there is no timeline, the counts differ, or a timeline is not of its program.
    """
    if not timelines:
        raise InputError("there is no timeline to draw; pass at least one")
    programs = [program] * len(timelines) if isinstance(program, RProgram) else list(program)
    if len(programs) != len(timelines):
        raise InputError(
            f"{len(programs)} programs for {len(timelines)} timelines; "
            "pass one program for all, or one for each"
        )
    named = len({each.name for each in programs}) > 1
    panels = tuple(
        Panel(each, timeline, named) for each, timeline in zip(programs, timelines, strict=True)
    )
    for panel in panels:
        _check(panel)
    return panels


def _check(panel: Panel) -> None:
    seen: set[tuple[int, int]] = set()
    for span in panel.timeline.spans:
        where = f"rTask #{span.position} of vEU {span.veu}"
        if not _is_of(span, panel.program):
            raise InputError(
                f"the {panel.timeline.source} timeline runs operator {span.operator} as {where}, "
                f"which is not so in program {panel.program.name!r}; pass the program it is of"
            )
        if not (isfinite(span.start) and isfinite(span.stop) and 0 <= span.start <= span.stop):
            raise InputError(
                f"the {panel.timeline.source} timeline runs {where} from {span.start} to "
                f"{span.stop} s; times must be finite, from 0 on, and end no sooner than they start"
            )
        if (span.veu, span.position) in seen:
            raise InputError(
                f"the {panel.timeline.source} timeline runs {where} twice; "
                "pass the spans of one run"
            )
        seen.add((span.veu, span.position))


def _is_of(span: Span, program: RProgram) -> bool:
    if not 0 <= span.veu < program.num_veus:
        return False
    tasks = program.veus[span.veu]
    return 0 <= span.position < len(tasks) and tasks[span.position].operator == span.operator
