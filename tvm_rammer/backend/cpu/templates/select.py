"""Which rule schedules a PrimFunc.

Of our own the first that does not decline and keeps to the budget; one from outside if what it
emits is estimated to take less.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from tvm import tirx
from tvm.s_tir import ScheduleError

from tvm_rammer.backend.cpu.templates.attention_rule import FewQueriesRule
from tvm_rammer.backend.cpu.templates.block_scaled_rule import FewBitsRule
from tvm_rammer.backend.cpu.templates.code_budget import within_budget
from tvm_rammer.backend.cpu.templates.elementwise_rule import Elementwise
from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
from tvm_rammer.backend.cpu.templates.finer import Option
from tvm_rammer.backend.cpu.templates.generic import Generic
from tvm_rammer.backend.cpu.templates.outer_product_rules import Convolution, Depthwise, Matmul
from tvm_rammer.backend.cpu.templates.pooling_rule import Pooling
from tvm_rammer.backend.cpu.templates.reduction_rule import Reduction
from tvm_rammer.backend.cpu.templates.replacement_rule import Replacement
from tvm_rammer.backend.cpu.templates.winograd.line_rule import WinogradLines
from tvm_rammer.backend.cpu.templates.winograd.rule import Winograd
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.backend.rules import CheckedRule, rules_for
from tvm_rammer.kernel.blocks import is_scheduled, loads
from tvm_rammer.kernel.inlined_size import kept_results
from tvm_rammer.kernel.scheduled import UNTUNED, Choice, Rule, Scheduled, Template
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.machines_like import machines_like, twice_the_registers

#: In the order in which they are asked, after Winograd's; the last one never declines.
RULES: tuple[Rule, ...] = (
    Convolution(),
    Depthwise(),
    Matmul(),
    Pooling(),
    FewBitsRule(),
    FewQueriesRule(),
    Reduction(),
    Replacement(),
    Elementwise(),
    Generic(),
)
#: Those that keep a result where it would make expressions too large; others inline all or nothing.
_KEEPING: tuple[Rule, ...] = (Elementwise(), Generic())
#: Those that list their configurations, besides Winograd's.
_TEMPLATES: tuple[Template[Any, Any], ...] = tuple(
    rule for rule in RULES if isinstance(rule, Template)
)


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
    """
    if is_scheduled(func):
        return Scheduled(func, "as given", "")
    packable = constants & _read_once(func)
    own = _by_our_own(func, packable, vdevice, winograd_tolerance)
    others = [
        (rule, made)
        for rule in rules_for(vdevice.kind)
        if (made := _by_another(rule, func, packable, vdevice)) is not None
    ]
    if not others:
        return own
    seconds = _seconds(own, vdevice)
    for rule, made in others:
        with rule.named("where what it emitted is priced"):
            its = _seconds(made, vdevice)
        if its < seconds:
            own, seconds = made, its
    return own


def _by_our_own(
    func: tirx.PrimFunc, packable: frozenset[int], vdevice: VDevice, winograd_tolerance: float
) -> Scheduled:
    """By the first of our own rules that does not decline."""
    every: tuple[Rule, ...] = (*_winograd(winograd_tolerance), *RULES)
    for rule in _KEEPING if kept_results(func) else every:
        try:
            scheduled = rule.apply(func, packable, vdevice)
        except ScheduleError:
            # A schedule primitive refused this shape of function: it is not this rule's own.
            continue
        bounded = scheduled and within_budget(scheduled)
        if bounded is not None:
            return bounded
    return Scheduled(func.with_attr("global_symbol", "main"), "untouched", "as written")


def _winograd(tolerance: float) -> tuple[Winograd, WinogradLines]:
    return (Winograd(tolerance), WinogradLines(tolerance))


def _by_another(
    rule: CheckedRule, func: tirx.PrimFunc, packable: frozenset[int], vdevice: VDevice
) -> Scheduled | None:
    """The usual configurations of a rule from outside, if the function is its own."""
    found = rule.match(func, packable, vdevice)
    usual = [] if found is None else [rule.choice(found, each) for each in rule.usual(found)]
    with rule.named("where what it emitted is looked at"):
        return schedule_as(usual) if usual else None


def _seconds(scheduled: Scheduled, vdevice: VDevice) -> float:
    """What all stages are estimated to take, each shared by all vEUs."""
    stages = split_into_stages(scheduled.func, partial(tile_seconds, vdevice.speeds)).stages
    options = (Option(stage, stage.num_tiles, stage.tile_seconds) for stage in stages)
    return sum(option.cost(vdevice.num_veus) for option in options)


def rule_names() -> tuple[str, ...]:
    """Our own rules."""
    rules: tuple[Rule, ...] = (*_winograd(0.0), *RULES)
    return tuple(rule.name for rule in rules)


def choices(
    func: tirx.PrimFunc,
    constants: frozenset[int],
    vdevice: VDevice,
    winograd_tolerance: float = DEFAULT_TOLERANCE,
) -> list[Choice]:
    """All ways to schedule a PrimFunc, the first of which :func:`schedule` takes.

    Measuring is for finding out where the description of a machine is wrong: register tiles are
    listed for twice the registers. If there are not so many, their sums spill and they lose.
    Parameters as for :func:`schedule`.

    Returns
    -------
    list of Choice
        Empty where rules offer no more than one.
    """
    if is_scheduled(func):
        return []
    packable = constants & _read_once(func)
    templates = _templates(func, vdevice, winograd_tolerance)
    doubted = replace(vdevice, vector_registers=twice_the_registers(vdevice))
    found = [choice for each in templates for choice in each.choices(func, packable, doubted)]
    usual = partial(schedule, func, constants, vdevice, winograd_tolerance)
    return [Choice(UNTUNED, usual), *found] if len(found) > 1 else []


def likely(
    func: tirx.PrimFunc,
    constants: frozenset[int],
    vdevice: VDevice,
    winograd_tolerance: float = DEFAULT_TOLERANCE,
) -> list[str]:
    """What builds would take on machines like this one: whose numbers are wrong has one of them.

    Parameters as for :func:`schedule`.

    Returns
    -------
    list of str
        Texts of :func:`choices` besides the usual one, that of most machines first.
    """
    if is_scheduled(func):
        return []
    packable = constants & _read_once(func)
    templates = _templates(func, vdevice, winograd_tolerance)

    def taken(machine: VDevice) -> str:
        found = ((each, each.match(func, packable, machine)) for each in templates)
        usual = (
            template.choice(match, configuration).text
            for template, match in found
            if match is not None
            for configuration in template.usual(match)[:1]
        )
        return next(usual, UNTUNED)

    here, *others = map(taken, [vdevice, *machines_like(vdevice)])
    return [text for text, _ in Counter(others).most_common() if text not in (here, UNTUNED)]


def _templates(
    func: tirx.PrimFunc, vdevice: VDevice, winograd_tolerance: float
) -> list[Template[Any, Any]]:
    """Those that are asked for configurations of a function, in the order of the rules.

    Those from outside come last: what others are called does not depend on them.
    """
    outside: list[Template[Any, Any]] = [*rules_for(vdevice.kind)]
    if kept_results(func):
        return outside
    return [*_winograd(winograd_tolerance), *_TEMPLATES, *outside]


def schedule_as(made: Sequence[Choice]) -> Scheduled | None:
    """What choices become together: the first, and those after it that can stand in for it.

    They can if they are within the budget of code, take the same packed weights and round alike,
    and their stages have the same buffers between them.

    Returns
    -------
    Scheduled or None
        ``None`` if the first is beyond the budget.
    """
    same = [choice for choice in made if choice.rounding == made[0].rounding]
    first, *others = (within_budget(choice.emit()) for choice in same)
    if first is None:
        return None
    interface = _interface(first)
    finer: Scheduled | None = None
    for other in reversed(others):
        if other and _interface(other) == interface:
            finer = replace(other, finer=finer)
    return first if finer is None else replace(first, finer=finer)


def alike(choice: Choice) -> str:
    """What is the same for choices that :func:`schedule_as` puts together."""
    text = repr((choice.rounding, _interface(choice.emit())))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _interface(scheduled: Scheduled) -> Any:
    """How weights are packed, and sizes and types of the buffers between the stages."""
    split = split_into_stages(scheduled.func)
    sizes = [(prod(scratch.shape), scratch.dtype) for scratch in split.scratch]
    return scheduled.packings, len(split.stages), sizes


def _read_once(func: tirx.PrimFunc) -> frozenset[int]:
    """The parameters that one expression reads: only there is a packed form of use."""
    read = [load.source for load in loads(func.body)]
    return frozenset(
        position
        for position, param in enumerate(func.params)
        if sum(source.same_as(param) for source in read) == 1
    )
