"""Transpositions in blocks, so that both sides use whole cache lines.

Along the last axis a transposition reads from as many lines as the axis is long, one element each.
A nest that walks the axis that is contiguous on the other side inside of every vector of the last
one reads all elements of few lines before these are gone.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.pieces import interleaves
from tvm_rammer.kernel.blocks import loads
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.pointwise import (
    Pointwise,
    coefficients,
    merged,
    simplified,
    with_last_axis_cut,
)
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: Elements of a shorter step share their lines with their neighbours.
_FAR = 8


def without_remainders(block: Pointwise) -> Pointwise:
    """The last axis as two where indices divide it: the shuffle of channels is a transposition.

    All axes that can be are merged.
    """
    block = merged(block)
    if not block.axes:
        return block
    last = block.axes[-1]
    remainders = collect(block.value, tirx.FloorMod)
    lengths = {int(node.b) for node in remainders if node.a.same_as(last.var)}
    if len(lengths) != 1 or last.extent % min(lengths):
        return block
    return merged(simplified(with_last_axis_cut(block, min(lengths), len(block.axes) - 1)))


def walked_inside(block: Pointwise, vdevice: VDevice) -> Axis | None:
    """The axis to be walked inside of the vectors of the last one, if the block is a transposition
    of an axis of several vectors."""
    if not block.axes or interleaves(block):
        return None
    near = {_near_axis(block, load) for load in loads(block.value)}
    places = [place for place in near if place is not None]
    lanes = vdevice.vector_bytes // dtype_bytes(str(block.target.dtype))
    # A tile has two vectors, as the last one overlaps.
    if len(places) != 1 or block.axes[-1].extent < 2 * lanes or lanes < 2:
        return None
    return block.axes[places[0]]


def _near_axis(block: Pointwise, load: Any) -> int | None:
    """Along which other axis a load is contiguous that is far apart along the last one."""
    steps = coefficients(load.indices[0], [axis.var for axis in block.axes])
    if not steps or abs(steps[-1]) < _FAR:
        return None
    return steps.index(1) if 1 in steps else None
