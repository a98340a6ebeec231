"""Schedules of operators for blocks of threads: the cheapest that a resident block can run.

dlight's rules and those of ``block_tilings`` each answer for what is theirs; dlight's fallback, an
element of the result to a thread, for everything. Some ignore the limits of the target, so every
answer is looked at: what wants more threads or more shared memory than a resident block has is left
out. Of the others the model of an SM knows what their tiles take. Some are efficient, few large
tiles; others end sooner where the operator has the device for itself. Both are kept, and the plan
chooses. They add up in different orders, so plans of GPUs may differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from tvm_rammer.backend.cuda.arch_target import costs_of, target_of
from tvm_rammer.backend.cuda.block_tilings import (
    BlockReduction,
    SplitSum,
    leaves_out_results,
    product_of,
)
from tvm_rammer.backend.cuda.column_strips import ColumnStrips
from tvm_rammer.backend.cuda.made_stages import Limits, MadeStages, made_stages
from tvm_rammer.backend.cuda.reducers import know_infinite_starts, with_kept_conditions
from tvm_rammer.backend.cuda.short_sums import ShortSum
from tvm_rammer.backend.cuda.single_terms import with_single_terms
from tvm_rammer.backend.cuda.sliced_matmul import SlicedMatmul
from tvm_rammer.backend.cuda.tensor_matmul import TensorMatmul
from tvm_rammer.backend.cuda.wide_functions import with_wide_functions
from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.blocks import is_scheduled, schedule_of
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.scheduled import Choice, Scheduled
from tvm_rammer.kernel.starts import with_infinite_starts
from tvm_rammer.machine import VDevice
from tvm_rammer.units import counted

_REFUSED = "an operator cannot be computed by resident blocks: "
#: How rules stop half way at what they do not expect: TVM's assert and subscript what is not there.
_UNEXPECTED = (
    tvm.error.InternalError,
    tvm.s_tir.ScheduleError,
    ValueError,
    IndexError,
    AssertionError,
    AttributeError,
    TypeError,
)
#: dlight has steps of loops written out, up to 256 of them.
_UNROLL, _MOST_UNROLLED = "pragma_auto_unroll_max_step", 32
#: What is not at least so much shorter is as good: estimates are coarse, and bodies take nvcc long.
_WORTH = 0.8
#: Rows or columns of a product up to which rules for other sums may be faster.
_FEW = 8
#: Blocks for each vEU beyond which nothing is gained by more of them.
_MOST_BLOCKS = 32


def schedule(
    func: tirx.PrimFunc, vdevice: VDevice, limits: Limits, given: Sequence[Choice] = ()
) -> Scheduled:
    """Schedule a legalized, fused PrimFunc.

    Parameters
    ----------
    func : PrimFunc
        What is scheduled already stays as it is.
    vdevice : VDevice
        Its vEUs may share the operator.
    limits : Limits
        Of a resident block.
    given : sequence of Choice
        Schedules that somebody measured, the fastest first: the first one that a resident block
        can run is there in any case, and others beside it where the model says that they are worth
        it. What is said of those before is why they are not.

    Returns
    -------
    Scheduled
        The schedule that takes the fewest seconds of all blocks together, with finer ones that end
        sooner.

    Raises
    ------
    ModelError
        When no rule's answer fits: the last reason.
    """
    target = target_of(vdevice.features[0])
    func = _prepared(func)
    if is_scheduled(func):
        made = made_stages(func, target, limits)
        return _Answer(func, "as given", made, vdevice).scheduled(None)
    problem = "no rule of TVM schedules it"
    answers: list[_Answer] = []
    for rules in _rules_for(func):
        for name, found in _answers(func, target, rules):
            try:
                answers.append(_Answer(found, name, _made(found, target, limits), vdevice))
            except ModelError as error:
                problem = str(error)
        if answers:
            break
    answers = _of_few_blocks(answers) or answers
    measured, note = _measured(given, target, limits, vdevice)
    if not answers and measured is None:
        raise ModelError(f"{_REFUSED}{problem}")
    scheduled: Scheduled | None = None
    for answer in reversed(_front(answers) if measured is None else _beside(measured, answers)):
        scheduled = answer.scheduled(scheduled)
    assert scheduled is not None
    return replace(scheduled, note=note)


def every_schedule(
    func: tirx.PrimFunc, vdevice: VDevice, limits: Limits
) -> list[tuple[str, MadeStages]]:
    """Whatever any rule answers that resident blocks can run, by rules' names: for measurements."""
    target, func = target_of(vdevice.features[0]), _prepared(func)
    *_, rules = _rules_for(func)
    found = []
    for name, answer in _answers(func, target, rules):
        with suppress(ModelError):
            found.append((name, _made(answer, target, limits)))
    return found


def usual_schedule(
    func: tirx.PrimFunc, target: tvm.target.Target, has_threads: bool
) -> tirx.PrimFunc | None:
    """What the first rule of dlight's that knows an operator of any shape makes of it, if any.

    One rule knows of parts that have threads already, and leaves them as they are.
    """
    gpu, prepared = dlight.gpu, _prepared(func)
    rules = [gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction()]
    answers = _answers(prepared, target, [*([] if has_threads else rules), gpu.Fallback()])
    return next((answer for _, answer in answers), None)


def _prepared(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc as rules take it."""
    know_infinite_starts()
    return with_infinite_starts(with_single_terms(with_wide_functions(func)))


@lru_cache(maxsize=256)
def planning_problem(func: tirx.PrimFunc, vdevice: VDevice, limits: Limits) -> str | None:
    """Why resident blocks cannot run a PrimFunc; None if they can.

    Asked of one that is scheduled already, or has loops inside of its blocks, as TVM writes
    scatters, and windows whose size varies. Any other one is scheduled so that they can. Every call
    asks, and an unrolled network has thousands of one PrimFunc.
    """
    try:
        if is_scheduled(func):
            made_stages(func, target_of(vdevice.features[0]), limits)
        elif _has_inner_loops(func):
            schedule(func, vdevice, limits)
    except ModelError as error:
        return str(error).removeprefix(_REFUSED).partition(": leave the operator out")[0]
    return None


def _has_inner_loops(func: tirx.PrimFunc) -> bool:
    blocks = [block for block in collect(func.body, s_tir.SBlock) if block.name_hint != "root"]
    return any(collect(block.body, tirx.For, tirx.AttrStmt) for block in blocks)


@dataclass(frozen=True)
class _Answer:
    """A rule's schedule that a resident block can run."""

    func: tirx.PrimFunc
    origin: str
    made: MadeStages
    vdevice: VDevice

    @cached_property
    def area(self) -> float:
        """Seconds of all blocks together."""
        veus = self.vdevice.num_veus
        return sum(
            each.num_tiles * each.tile_seconds + min(each.num_tiles, veus) * self._row
            for each in self.made.split.stages
        )

    @cached_property
    def alone(self) -> float:
        """Seconds with all blocks for itself, which may be more than it has tiles."""
        between = self._row + self.vdevice.point_to_point_seconds
        return self.made.alone(self.vdevice.num_veus) + len(self.made.times) * between

    @property
    def _row(self) -> float:
        """Seconds of an rTask beside its tiles."""
        return costs_of(self.vdevice.features[0]).row

    @property
    def frame(self) -> Any:
        """Answers for which this is the same can stand in for each other."""
        split = self.made.split
        return split.scratch, tuple((stage.arguments, stage.modes) for stage in split.stages)

    def scheduled(self, finer: Scheduled | None) -> Scheduled:
        tilings = [
            f"{counted(body.num_tiles, 'tile')} of {counted(body.threads, 'thread')}"
            + (f", {body.shared_bytes:,} bytes shared" if body.shared_bytes else "")
            for body in self.made.bodies
        ]
        return Scheduled(self.func, self.origin, "; ".join(tilings), finer=finer)


def _front(answers: Sequence[_Answer]) -> list[_Answer]:
    """An efficient answer and, if they are worth a body more, one that is fast alone, and one that
    is nearly as good as each in what the other is not.
    """
    fastest = min(answers, key=lambda each: (each.alone, each.area))
    alike = [each for each in answers if each.frame == fastest.frame]
    fast = _best(alike, lambda each: each.alone, lambda each: each.area)
    efficient = _best(alike, lambda each: each.area, lambda each: each.alone)
    if fast.alone >= _WORTH * efficient.alone:
        return [efficient]
    middle = min(alike, key=lambda each: each.area * each.alone)
    worth = middle.alone < _WORTH * efficient.alone and middle.area < _WORTH * fast.area
    return [efficient, middle, fast] if worth else [efficient, fast]


def _beside(measured: _Answer, answers: Sequence[_Answer]) -> list[_Answer]:
    """A schedule that was measured, and others that are better in something, by estimates."""
    alike = [each for each in answers if each.frame == measured.frame]
    found = [measured]
    for each in _front(alike) if alike else ():
        better = each.area < _WORTH * measured.area or each.alone < _WORTH * measured.alone
        if better:
            found.append(each)
    return sorted(found, key=lambda each: each.area)


def _measured(
    given: Sequence[Choice], target: tvm.target.Target, limits: Limits, vdevice: VDevice
) -> tuple[_Answer | None, str | None]:
    """The first given schedule that a resident block can run, and why others before it cannot."""
    problem: str | None = None
    for choice in given:
        try:
            found = _ready(with_wide_functions(choice.emit().func))
            made = _made(found, target, limits)
        except ModelError as error:
            reason = str(error).partition(": leave the operator out")[0]
            problem = problem or f"{choice.text} is not used: {reason}"
            continue
        return _Answer(found, "record", made, vdevice), problem
    return None, problem


def _best(
    answers: Sequence[_Answer],
    wanted: Callable[[_Answer], float],
    beside: Callable[[_Answer], float],
) -> _Answer:
    """Of those that are about as good as the best one, the one that is best in something else."""
    least = min(map(wanted, answers))
    return min((each for each in answers if wanted(each) * _WORTH <= least), key=beside)


def _rules() -> list[Any]:
    """dlight's rules, those that know most of an operator first, then others.

    Which tilings of products there are was chosen by what 40 of them took on an H100 in 23 ways, so
    that for each of them one is nearly the fastest, and one nearly the most efficient.
    """
    gpu = dlight.gpu
    return [
        *(gpu.GEMV(), gpu.Reduction(), gpu.Transpose(), gpu.Fallback()),
        SlicedMatmul(threads=(16, 16), results=(8, 4), slices=1, terms=16),
        SlicedMatmul(threads=(16, 16), results=(4, 4), slices=1, terms=32),
        SlicedMatmul(threads=(8, 8), results=(8, 4), slices=4, terms=8),
        SlicedMatmul(threads=(8, 8), results=(4, 4), slices=4, terms=16),
        SlicedMatmul(threads=(4, 8), results=(4, 4), slices=8, terms=16),
        SlicedMatmul(threads=(4, 4), results=(4, 4), slices=16, terms=4),
        SlicedMatmul(threads=(2, 4), results=(4, 4), slices=16, terms=8),
        TensorMatmul(warps=(2, 4), fragments=(2, 1), depth=4),
        TensorMatmul(warps=(2, 2), fragments=(1, 1), depth=4),
        ColumnStrips(outputs=64),
        ColumnStrips(outputs=32),
        ColumnStrips(outputs=16),
        SplitSum(outputs=32, parts=8),
        SplitSum(outputs=16, parts=16),
        SplitSum(outputs=8, parts=32),
        SplitSum(outputs=8, parts=32, terms_apart=True),
        SplitSum(outputs=2, parts=32, terms_apart=True),
        BlockReduction(),
        ShortSum(threads=256, lanes=4),
        ShortSum(threads=64, lanes=4),
        ShortSum(threads=256, lanes=1),
        ShortSum(threads=64, lanes=1),
    ]


def _rules_for(func: tirx.PrimFunc) -> Iterator[list[Any]]:
    """Rules that are asked, and those that are asked where resident blocks run no answer."""
    if _leaves_out(func):
        yield [dlight.gpu.Fallback()]
        return
    if _is_large_product(func):
        yield [rule for rule in _rules() if isinstance(rule, SlicedMatmul | TensorMatmul)]
    yield _rules()


def _is_large_product(func: tirx.PrimFunc) -> bool:
    """Whether rules for products are the only ones to ask."""
    try:
        product = product_of(s_tir.Schedule(func))
    except _UNEXPECTED:
        return False
    return product is not None and min(product.m, product.n) > _FEW


def _answers(
    func: tirx.PrimFunc, target: tvm.target.Target, rules: Sequence[Any]
) -> Iterator[tuple[str, tirx.PrimFunc]]:
    """What rules answer, by their names."""
    for rule in rules:
        answer = _apply(rule, func, target)
        if answer is not None:
            yield type(rule).__name__.lower(), answer


def _leaves_out(func: tirx.PrimFunc) -> bool:
    """Whether only launches of their own compute what comes after a sum."""
    try:
        return leaves_out_results(func)
    except _UNEXPECTED:
        # Without a root block no rule knows it.
        return False


def _made(func: tirx.PrimFunc, target: tvm.target.Target, limits: Limits) -> MadeStages:
    """The stages of a rule's schedule, which TVM may not be able to lower."""
    try:
        return made_stages(func, target, limits)
    except _UNEXPECTED as error:
        raise ModelError(f"TVM does not lower it: {str(error).strip().splitlines()[0]}") from error


def _of_few_blocks(answers: Sequence[_Answer]) -> list[_Answer]:
    """Those that have not very many."""
    return [each for each in answers if _blocks(each.func) <= _MOST_BLOCKS * each.vdevice.num_veus]


def _blocks(func: tirx.PrimFunc) -> int:
    """Blocks of a scheduled PrimFunc whose launches have as many each."""
    extents = {
        str(loop.thread_binding.thread_tag): int(loop.extent)
        for loop in collect(func.body, tirx.For)
        if loop.thread_binding is not None
    }
    return prod(extent for tag, extent in extents.items() if tag.startswith("blockIdx"))


def _apply(rule: Any, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """A rule's schedule of a copy of a PrimFunc; None if it is not its own."""
    with target:
        try:
            answer = rule.apply(schedule_of(func).mod["main"], target, False)
        except _UNEXPECTED:
            return None
    if answer is None:
        return None
    found = answer[0] if isinstance(answer, list) else answer
    return _ready(found.mod["main"])


def _ready(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A schedule as the rest of this package takes it."""
    result = with_kept_conditions(_less_unrolled(func))
    return result.with_attrs({"tirx.is_scheduled": True, "tirx.noalias": True}).without_attr(
        "global_symbol"
    )


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
