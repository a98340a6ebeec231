"""Schedules of operators for blocks of threads: dlight's, the first that a resident block can run.

dlight's rules answer for what is theirs; its fallback, an element of the result to a thread, for
everything. Some of them ignore the limits of the target, so every answer is looked at: what wants
more threads or more shared memory than a resident block has is left to the next rule.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import dlight

from tvm_rammer.backend.cuda.stages import Limits, MadeStages, made_stages
from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.blocks import schedule_of
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.units import counted

_SCHEDULED = "tirx.is_scheduled"
#: dlight has steps of loops written out, up to 256 of them.
_UNROLL, _MOST_UNROLLED = "pragma_auto_unroll_max_step", 32


def schedule(func: tirx.PrimFunc, target: tvm.target.Target, limits: Limits) -> Scheduled:
    """Schedule a legalized, fused PrimFunc.

    Parameters
    ----------
    func : PrimFunc
        What is scheduled already stays as it is.
    target : Target
        Of kind ``cuda``.
    limits : Limits
        Of a resident block.

    Raises
    ------
    ModelError
        When no rule's answer fits: the last reason.
    """
    if func.attrs and _SCHEDULED in func.attrs:
        return _scheduled(func, "as given", made_stages(func, target, limits))
    problem = "no rule of TVM schedules it"
    for rule in _rules():
        answer = _apply(rule, func, target)
        if answer is None:
            continue
        try:
            made = made_stages(answer, target, limits)
        except ModelError as error:
            problem = str(error)
            continue
        return _scheduled(answer, type(rule).__name__.lower(), made)
    raise ModelError(f"an operator cannot be computed by resident blocks: {problem}")


def given_schedule_problem(
    func: tirx.PrimFunc, target: tvm.target.Target, limits: Limits
) -> str | None:
    """Why resident blocks cannot run a PrimFunc that is scheduled already; None if they can.

    Any other PrimFunc is scheduled so that they can.
    """
    if not func.attrs or _SCHEDULED not in func.attrs:
        return None
    try:
        made_stages(func, target, limits)
    except ModelError as error:
        return str(error).partition(": leave the operator out")[0]
    return None


def _scheduled(func: tirx.PrimFunc, origin: str, made: MadeStages) -> Scheduled:
    tilings = [
        f"{counted(body.num_tiles, 'tile')} of {counted(body.threads, 'thread')}"
        + (f", {body.shared_bytes:,} bytes shared" if body.shared_bytes else "")
        for body in made.bodies
    ]
    return Scheduled(func, origin, "; ".join(tilings))


def _rules() -> list[Any]:
    """dlight's rules, those that know most of an operator first."""
    gpu = dlight.gpu
    return [
        gpu.GEMV(),
        gpu.Matmul(),
        gpu.Reduction(),
        gpu.GeneralReduction(),
        gpu.Transpose(),
        gpu.Fallback(),
    ]


def _apply(rule: Any, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """A rule's schedule of a copy of a PrimFunc; None if it is not its own."""
    with target:
        try:
            answer = rule.apply(schedule_of(func).mod["main"], target, False)
        except (tvm.error.InternalError, tvm.s_tir.ScheduleError, ValueError, IndexError):
            # Some rules stop half way at what they do not expect.
            return None
    if answer is None:
        return None
    found = answer[0] if isinstance(answer, list) else answer
    result = _less_unrolled(found.mod["main"])
    return result.with_attrs({_SCHEDULED: True, "tirx.noalias": True}).without_attr("global_symbol")


def _less_unrolled(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A schedule whose loops are written out no further than nvcc has registers for.

    nvcc unrolls as well, and knows how many there are.
    """

    def rolled(loop: Any) -> Any:
        if _UNROLL not in loop.annotations:
            return loop
        notes = {**loop.annotations, _UNROLL: min(_MOST_UNROLLED, int(loop.annotations[_UNROLL]))}
        bounds = (loop.loop_var, loop.min, loop.extent, loop.kind)
        return tirx.For(*bounds, loop.body, loop.thread_binding, notes, loop.step)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, rolled)))
