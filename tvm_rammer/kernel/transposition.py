"""Transpositions in blocks, so that both sides use whole cache lines.

Along the last axis a transposition reads from as many lines as the axis is long, one element each.
A block of one vector along it, and of many points along the axis that is contiguous on the other
side, reads all of these elements before their lines are gone.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_rammer.kernel.blocks import loads
from tvm_rammer.kernel.pointwise import (
    Pointwise,
    coefficients,
    merged,
    simplified,
    with_last_axis_cut,
)
from tvm_rammer.rprogram import dtype_bytes
from tvm_rammer.vdevice import VDevice

#: Elements of a shorter step share their lines with their neighbours.
_FAR = 8


def without_remainders(block: Pointwise) -> Pointwise:
    """The last axis as two where indices divide it: the shuffle of channels is a transposition."""
    if not block.axes:
        return block
    last = block.axes[-1]
    found: list[Any] = []
    tvm_ffi.structural_walk(block.value, (tirx.FloorMod, found.append))
    lengths = {int(node.b) for node in found if node.a.same_as(last.var)}
    if len(lengths) != 1 or last.extent % min(lengths):
        return block
    return simplified(with_last_axis_cut(block, min(lengths), len(block.axes) - 1))


def in_blocks(block: Pointwise, vdevice: VDevice) -> Pointwise:
    """The last axis in parts of one vector, outside of the axis that a far load is contiguous on.

    What is no transposition, or has no vector width that divides the last axis, stays as it is.
    """
    block = merged(without_remainders(merged(block)))
    near = {_near_axis(block, load) for load in loads(block.value)}
    places = [place for place in near if place is not None]
    lanes = vdevice.vector_bytes // dtype_bytes(str(block.target.dtype))
    lengths = [n for n in (lanes, lanes // 2, lanes // 4) if n > 1]
    fitting = [n for n in lengths if block.axes and block.axes[-1].extent % n == 0]
    if len(places) != 1 or not fitting or block.axes[-1].extent <= fitting[0]:
        return block
    return with_last_axis_cut(block, fitting[0], places[0])


def _near_axis(block: Pointwise, load: Any) -> int | None:
    """Along which other axis a load is contiguous that is far apart along the last one."""
    steps = coefficients(load.indices[0], [axis.var for axis in block.axes])
    if not steps or abs(steps[-1]) < _FAR:
        return None
    return steps.index(1) if 1 in steps else None
