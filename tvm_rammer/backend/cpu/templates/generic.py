"""Any legalized PrimFunc: inline what is element-wise, cut every remaining loop nest into tiles.

The last resort of the rules, so it never declines. A PrimFunc that schedule primitives refuse as a
whole runs as it is, in a single tile: :mod:`~tvm_rammer.backend.cpu.templates.select` sees to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.backend.cpu.templates.register_tile import lanes_for
from tvm_rammer.kernel.blocks import (
    attempt,
    extent,
    is_reduction,
    root_blocks,
    schedule_of,
    spatial_axes,
    split_loops,
)
from tvm_rammer.kernel.inlined_size import kept_results
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.kernel.starts import with_infinite_starts
from tvm_rammer.machine import VDevice

#: Scalar operations that a tile along the last axis aims at.
_CHUNK = 1024


@dataclass(frozen=True)
class Generic:
    """Schedules every PrimFunc, one loop nest at a time."""

    name: str = "generic"

    def apply(self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice) -> Scheduled:
        sch = schedule_of(with_infinite_starts(func))
        kept = kept_results(sch.mod["main"])
        for block in root_blocks(sch)[:-1]:
            if not is_reduction(sch, block) and not _written(sch, block) & kept:
                attempt(sch.compute_inline, block)
        tilings = [_cut(sch, block, vdevice) for block in root_blocks(sch)]
        return Scheduled(sch.mod["main"], self.name, ", ".join(tilings))


def _written(sch: s_tir.Schedule, block: Any) -> set[Any]:
    return {region.source for region in sch.get(block).writes}


def _cut(sch: s_tir.Schedule, block: Any, vdevice: VDevice) -> str:
    """Cut the loop nest of one block into tiles and vectorise it where its lanes are contiguous."""
    spatial, reduced = split_loops(sch, block)
    if not all(extent(sch, loop) for loop in spatial + reduced):
        if reduced:  # A reduction over nothing is its initial value.
            attempt(sch.decompose_reduction, block, (spatial + reduced)[0])
        return "no work"
    if not spatial:
        return "one tile"
    *outer, last = spatial
    lanes = lanes_for(extent(sch, last), vdevice) if _contiguous(sch, block) else None
    work = prod(extent(sch, loop) for loop in reduced) * (lanes or 1)
    lane = None
    if lanes is not None:
        last, lane = sch.split(last, [None, lanes])
        if reduced:
            sch.reorder(*outer, last, *reduced, lane)
    chunk = _largest_divisor(extent(sch, last), max(1, _CHUNK // work))
    last, _ = sch.split(last, [None, chunk])
    tiles = sch.fuse(*outer, last)
    parallel = attempt(sch.parallel, tiles)
    if lane is not None:
        attempt(sch.vectorize, lane)
    if reduced:
        attempt(sch.decompose_reduction, block, reduced[0])
    count = extent(sch, tiles) if parallel else 1
    width = f" of {chunk} vectors of {lanes}" if lane is not None else f" of {chunk}"
    return f"{count} tiles{width}"


def _largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` that is at most ``limit``."""
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)


def _contiguous(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether neighbours along the last spatial axis are neighbours in the written buffer."""
    store = sch.get(block).body
    if not isinstance(store, tirx.BufferStore) or not store.indices:
        return False
    axes = spatial_axes(sch, block)
    innermost = store.indices[-1]
    return isinstance(innermost, tirx.Var) and innermost.same_as(axes[-1])
