"""Which rule schedules a PrimFunc: the first that does not decline, and keeps to the budget."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import ScheduleError

from tvm_rammer.backend.cpu.templates.code_budget import within_budget
from tvm_rammer.backend.cpu.templates.convolution import Convolution
from tvm_rammer.backend.cpu.templates.depthwise import Depthwise
from tvm_rammer.backend.cpu.templates.elementwise import Elementwise
from tvm_rammer.backend.cpu.templates.generic import Generic
from tvm_rammer.backend.cpu.templates.matmul import Matmul
from tvm_rammer.backend.cpu.templates.pooling import Pooling
from tvm_rammer.backend.cpu.templates.reduction import Reduction
from tvm_rammer.backend.cpu.templates.winograd.line_rule import WinogradLines
from tvm_rammer.backend.cpu.templates.winograd.rule import Winograd
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.kernel.inlined_size import kept_results
from tvm_rammer.kernel.scheduled import Rule, Scheduled
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


def _read_once(func: tirx.PrimFunc) -> frozenset[int]:
    """The parameters that one expression reads: only there is a packed form of use."""
    read: list[Any] = []
    tvm_ffi.structural_walk(func.body, (TensorLoad, lambda load: read.append(load.source)))
    return frozenset(
        position
        for position, param in enumerate(func.params)
        if sum(source.same_as(param) for source in read) == 1
    )
