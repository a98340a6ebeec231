"""Which rule schedules a PrimFunc: the first that does not decline, and keeps to the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import ScheduleError

from tvm_rammer.backend.cpu.templates.code_budget import within_budget
from tvm_rammer.backend.cpu.templates.convolution import Convolution
from tvm_rammer.backend.cpu.templates.depthwise import Depthwise
from tvm_rammer.backend.cpu.templates.elementwise import Elementwise
from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
from tvm_rammer.backend.cpu.templates.generic import Generic
from tvm_rammer.backend.cpu.templates.matmul import Matmul
from tvm_rammer.backend.cpu.templates.pooling import Pooling
from tvm_rammer.backend.cpu.templates.reduction import Reduction
from tvm_rammer.backend.cpu.templates.winograd.line_rule import WinogradLines
from tvm_rammer.backend.cpu.templates.winograd.rule import Winograd
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.kernel.inlined_size import kept_results
from tvm_rammer.kernel.scheduled import UNTUNED, Choice, Rule, Scheduled, Tunable
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.machine import VDevice

#: In the order in which they are asked, after Winograd's; the last one never declines.
RULES: tuple[Rule, ...] = (
    Convolution(),
    Depthwise(),
    Matmul(),
    Pooling(),
    Reduction(),
    Elementwise(),
    Generic(),
)
#: Those that keep a result where it would make expressions too large; others inline all or nothing.
_KEEPING: tuple[Rule, ...] = (Elementwise(), Generic())
#: Those that list their configurations, besides Winograd's.
_TUNABLE: tuple[Tunable, ...] = (Convolution(), Depthwise(), Matmul())


def schedule(
    func: tirx.PrimFunc,
    constants: frozenset[int],
    vdevice: VDevice,
    winograd_tolerance: float = DEFAULT_TOLERANCE,
) -> Scheduled:
    """Schedule a legalized, fused PrimFunc.

    Parameters
    ----------
    func : tirx.PrimFunc
        Not scheduled yet. One that is (attribute ``tirx.is_scheduled``) stays as it is.
    constants : frozenset of int
        Parameters that are constants wherever the function is called.
    vdevice : VDevice
    winograd_tolerance : float
        See :class:`Winograd`.

    Returns
    -------
    Scheduled
    """
    if func.attrs and "tirx.is_scheduled" in func.attrs:
        return Scheduled(func, "as given", "")
    packable = constants & _read_once(func)
    winograd: tuple[Rule, ...] = (
        Winograd(winograd_tolerance),
        WinogradLines(winograd_tolerance),
    )
    rules = _KEEPING if kept_results(func) else (*winograd, *RULES)
    for rule in rules:
        try:
            scheduled = rule.apply(func, packable, vdevice)
        except ScheduleError:
            # A schedule primitive refused this shape of function: it is not this rule's own.
            continue
        bounded = scheduled and within_budget(scheduled)
        if bounded is not None:
            return bounded
    return Scheduled(func.with_attr("global_symbol", "main"), "untouched", "as written")


def choices(
    func: tirx.PrimFunc,
    constants: frozenset[int],
    vdevice: VDevice,
    winograd_tolerance: float = DEFAULT_TOLERANCE,
) -> list[Choice]:
    """All ways to schedule a PrimFunc, the first of which :func:`schedule` takes.

    Parameters as for :func:`schedule`.

    Returns
    -------
    list of Choice
        Empty where no rule offers a choice.
    """
    if (func.attrs and "tirx.is_scheduled" in func.attrs) or kept_results(func):
        return []
    packable = constants & _read_once(func)
    rules: tuple[Tunable, ...] = (Winograd(winograd_tolerance), *_TUNABLE)
    found = [choice for rule in rules for choice in rule.choices(func, packable, vdevice)]
    usual = partial(schedule, func, constants, vdevice, winograd_tolerance)
    return [Choice(UNTUNED, usual), *found] if found else []


def schedule_as(made: Sequence[Choice]) -> Scheduled | None:
    """What choices become together: the first, and those after it that can stand in for it.

    They can if they are within the budget of code, take the same packed weights and round alike,
    and their stages have the same buffers between them.

    Returns
    -------
    Scheduled or None
        ``None`` if the first is beyond the budget.
    """
    alike = [choice for choice in made if choice.rounding == made[0].rounding]
    first, *others = (within_budget(choice.emit()) for choice in alike)
    if first is None:
        return None
    between = _between(first)
    same = [
        replace(other, finer=None)
        for other in others
        if other and other.packings == first.packings and _between(other) == between
    ]
    finer: Scheduled | None = None
    for other in reversed(same):
        finer = replace(other, finer=finer)
    return replace(first, finer=finer) if same else first


def _between(scheduled: Scheduled) -> list[tuple[int, str]]:
    """Sizes and types of the buffers between the stages, and how many stages there are."""
    split = split_into_stages(scheduled.func, tile_seconds)
    sizes = [(prod(scratch.shape), scratch.dtype) for scratch in split.scratch]
    return [(len(split.stages), "stages"), *sizes]


def _read_once(func: tirx.PrimFunc) -> frozenset[int]:
    """The parameters that one expression reads: only there is a packed form of use."""
    read: list[Any] = []
    tvm_ffi.structural_walk(func.body, (TensorLoad, lambda load: read.append(load.source)))
    return frozenset(
        position
        for position, param in enumerate(func.params)
        if sum(source.same_as(param) for source in read) == 1
    )
