"""The plainest schedule: the outer loops of every nest are cut into a few tiles."""

from __future__ import annotations

from itertools import takewhile
from math import ceil
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir import ScheduleError

from tvm_rammer.kernel.blocks import extent, is_scheduled, root_blocks, schedule_of, split_loops
from tvm_rammer.kernel.scheduled import Scheduled

#: Enough for several vEUs, few enough to be stepped through.
_MOST_TILES = 8
#: Seconds of a tile: so long that policies spread the tiles of an operator.
_TILE_SECONDS = 1e-4


def tiled(func: tirx.PrimFunc) -> Scheduled:
    """Cut a legalized PrimFunc into tiles; what is scheduled already stays as it is."""
    if is_scheduled(func):
        return Scheduled(func, "as given", "")
    sch = schedule_of(func)
    try:
        blocks = root_blocks(sch)
    except ScheduleError:
        # Loops that nobody put into blocks: running sums.
        return Scheduled(func.with_attr("global_symbol", "main"), "as written", "")
    counts = [_cut(sch, block) for block in blocks]
    return Scheduled(sch.mod["main"], "interpreted", ", ".join(f"{n} tiles" for n in counts))


def tile_seconds(nest: Any, num_tiles: int, nbytes: int) -> float:
    """What a tile costs; nobody waits for it."""
    return _TILE_SECONDS


def _cut(sch: s_tir.Schedule, block: Any) -> int:
    """Cut the loops around a block that do not reduce; how many tiles there are."""
    spatial, reduced = split_loops(sch, block)
    inner = [sch.get(loop) for loop in reduced]
    outer = list(
        takewhile(
            lambda loop: not any(sch.get(loop).same_as(each) for each in inner),
            sch.get_loops(block),
        )
    )
    if not outer or not all(extent(sch, loop) for loop in (*spatial, *reduced)):
        return 1
    try:
        fused = sch.fuse(*outer)
        length = ceil(extent(sch, fused) / _MOST_TILES)
        tiles, _ = sch.split(fused, [None, length])
        sch.parallel(tiles)
    except ScheduleError:
        return 1
    return extent(sch, tiles)
