"""Element-wise operators and data movement: one loop nest per result, inlined as far as it goes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir import ScheduleError

from tvm_rammer.kernel.blocks import root_blocks, schedule_of
from tvm_rammer.kernel.pointwise import FlatViews, pointwise
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.kernel.split import statements
from tvm_rammer.kernel.tiled_nest import tiled_nest, with_nests
from tvm_rammer.kernel.transposition import in_blocks
from tvm_rammer.vdevice import VDevice


@dataclass(frozen=True)
class Elementwise:
    """Schedules PrimFuncs of which every point is computed by itself."""

    name: str = "elementwise"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        sch = schedule_of(func)
        for block in root_blocks(sch)[:-1]:
            # What is a result, or is no single expression, stays a block of its own.
            with suppress(ScheduleError):
                sch.compute_inline(block)
        inlined = sch.mod["main"]
        results = [_sole_block(nest) for nest in statements(inlined.body.block.body)]
        found = [block for block in results if block is not None]
        if len(found) < len(results):
            return None
        params = list(inlined.params)
        views = FlatViews(params)
        # Parts of a split that nobody uses are written to a buffer that nobody reads.
        used = [block for block in found if _written(block) & set(params)]
        points = [pointwise(block, views) for block in used]
        nests = [
            tiled_nest(in_blocks(point, vdevice), vdevice) for point in points if point is not None
        ]
        if not nests or len(nests) < len(points):
            return None
        return with_nests(inlined, views, nests, self.name)


def _written(block: s_tir.SBlock) -> set[Any]:
    return {region.source for region in block.writes}


def _sole_block(nest: Any) -> s_tir.SBlock | None:
    """The block of a nest of loops that runs it once at every point, ``None`` for other nests."""
    extents: dict[Any, int] = {}
    while isinstance(nest, tirx.For):
        if not isinstance(nest.extent, tirx.IntImm) or not _is_number(nest.min, 0):
            return None
        extents[nest.loop_var] = int(nest.extent)
        nest = nest.body
    if not isinstance(nest, s_tir.SBlockRealize) or not _is_number(nest.predicate, 1):
        return None
    for value, axis in zip(nest.iter_values, nest.block.iter_vars, strict=True):
        single = 1 if _is_number(value, 0) else None
        if extents.pop(value, single) != int(axis.dom.extent):
            return None
    return None if extents else nest.block


def _is_number(expression: Any, number: int) -> bool:
    return isinstance(expression, tirx.IntImm) and int(expression) == number
