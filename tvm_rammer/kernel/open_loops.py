"""Schedules by primitives for operators of open sizes that cannot be cut into blocks.

Nothing is known of them but their loops: those over elements are shared out, the last one is
computed in vectors where its length is known, and what is added up stands between.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.kernel.blocks import is_reduced, root_blocks, schedule_of
from tvm_rammer.kernel.loop_nests import LoopNest, NotInBlocksError, nests_of

#: Of tensors with fewer axes the elements are not worth a launch, unless they are sums.
_FEWEST_AXES = 3
#: Elements of the last axis that are computed at once, if it is no longer.
_LONGEST = 64
#: Lines are shared out, and not their elements, if there are so many.
_LINES = 64


def open_loops(func: tirx.PrimFunc, lanes: int) -> tirx.PrimFunc | None:
    """A scheduled function; ``None`` where that is not worth it.

    Parameters
    ----------
    func : tirx.PrimFunc
        Each block stores an element.
    lanes : int
        Elements of a vector.
    """
    try:
        nests = nests_of(func)
    except NotInBlocksError:
        return None
    if not any(map(_is_worth_it, nests)):
        return None
    sch = schedule_of(func)
    try:
        _share_out(sch, len(nests), lanes)
    except (s_tir.ScheduleError, NotInBlocksError):
        # Something beside loops, or what is read before it is written as a whole.
        return None
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def _share_out(sch: s_tir.Schedule, count: int, lanes: int) -> None:
    """Inline what is read once for each element, and schedule what is left."""
    for block in root_blocks(sch)[: count - 1]:
        if not any(map(is_reduced, sch.get(block).iter_vars)):
            sch.compute_inline(block)
    for block in root_blocks(sch):
        _schedule(sch, block, lanes)


def _are_many(extents: list[Any]) -> bool:
    """Whether lines are enough for all cores, as far as that is known."""
    known = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
    return len(known) < len(extents) or prod(known) >= _LINES


def _is_worth_it(nest: LoopNest) -> bool:
    return nest.sums or len(nest.update.indices) >= _FEWEST_AXES


def _schedule(sch: s_tir.Schedule, block: Any, lanes: int) -> None:
    variables, loops = sch.get(block).iter_vars, sch.get_loops(block)
    if len(variables) != len(loops):
        raise NotInBlocksError
    summed = [loop for var, loop in zip(variables, loops, strict=True) if is_reduced(var)]
    outer = [loop for var, loop in zip(variables, loops, strict=True) if not is_reduced(var)]
    inner = None
    extent = sch.get(outer[-1]).extent if outer else None
    if isinstance(extent, tirx.IntImm) and len(outer) > 1:
        *outer, inner = outer
        if int(extent) > _LONGEST:
            part, inner = sch.split(inner, [None, _LONGEST if int(extent) % lanes == 0 else lanes])
            outer.append(part)
    elif not summed and _are_many([sch.get(loop).extent for loop in outer[:-1]]):
        # Of a loop of its own, TVM's compiler makes vectors; places are not taken apart for each.
        outer = outer[:-1]
    if outer:
        sch.reorder(*outer, *summed, *([inner] if inner is not None else []))
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
    if inner is not None:
        sch.vectorize(inner)
    if summed:
        # Of no elements at all it is what it starts with.
        sch.decompose_reduction(block, summed[0])
