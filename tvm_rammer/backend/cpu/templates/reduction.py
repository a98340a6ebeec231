"""Reductions over the rows of a tensor, and everything made of them: softmax, normalisations.

A function qualifies when all its reductions run over the same rows. It then goes through its steps
row by row, so that what a step stores is still in the cache when the next one reads it, and in
vectors: along the row where its columns are neighbours in memory, across rows where these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.rows.across import AcrossRows
from tvm_rammer.backend.cpu.templates.rows.along import AlongRows
from tvm_rammer.backend.cpu.templates.rows.parts import in_parts
from tvm_rammer.backend.cpu.templates.rows.program import RowProgram, RowStep
from tvm_rammer.backend.cpu.templates.rows.recognise import recognise
from tvm_rammer.backend.cpu.templates.rows.vector_axis import vector_axis
from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.machine import VDevice

#: Vectors of rows in a tile: enough that what is read lies together.
_VECTORS = 8
#: Fewer tiles than this leave vEUs idle.
_FEW_TILES = 16
#: Up to so many rows of a factor, products are summed up along the other one's rows where they lie.
FEW_ROWS = 4

Tiling = AlongRows | AcrossRows


@dataclass(frozen=True)
class Reduction:
    """Schedules functions whose reductions all run over the same rows."""

    name: str = "reduction"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        found = recognise(func)
        if found is None:
            return None
        main, program = found
        shared = max((_sharing_rows(step, program.kept) for step in program.steps), default=0)
        if shared > FEW_ROWS:
            return None
        tiling = _tiling(program, vdevice)
        if tiling is None or (shared and not isinstance(tiling, AlongRows)):
            return None
        parted = _parted(tiling, vdevice)
        body = parted or _tile_loop([tiling])
        words = f"{tiling.tiling}, in parts" if parted is not None else tiling.tiling
        return Scheduled(main.with_body(body), self.name, words)


def _sharing_rows(step: RowStep, kept: tuple[int, ...]) -> int:
    """How many rows share the less shared factor of the products that a step sums up, if it does.

    Such factors want to be used for several rows while they are in registers: see
    :class:`~.matmul.Matmul` and :class:`~.convolution.Convolution`.
    """
    rows = {v: kept[axis] for v, axis in step.axes.items() if axis is not None and axis < len(kept)}
    found = [0]
    for store in step.stores:
        if step.reduces and isinstance(store.value, tirx.Mul):
            missing = [rows.keys() - variables(load.indices) for load in loads(store.value)]
            if any(missing):
                found.append(min(prod(rows[var] for var in some) for some in missing))
    return max(found)


def _tiling(program: RowProgram, vdevice: VDevice) -> Tiling | None:
    across = vector_axis(program, across=True, vdevice=vdevice)
    if across is not None:
        return AcrossRows(program, across, _VECTORS)
    along = vector_axis(program, across=False, vdevice=vdevice)
    return None if along is None else AlongRows(program, along)


def _parted(tiling: Tiling, vdevice: VDevice) -> Any | None:
    """The loops over the parts of rows and over rows, when these are too few to be shared."""
    if tiling.num_tiles >= _FEW_TILES:
        return None
    cut = in_parts(tiling.program, tiling.num_tiles, across=isinstance(tiling, AcrossRows))
    if cut is None:
        return None
    parts = [_tiling(program, vdevice) for program in cut.parts]
    whole = _tiling(cut.whole, vdevice)
    if whole is None or any(part is None for part in parts):
        return None
    loops = [_tile_loop([part for part in parts if part is not None]), _tile_loop([whole])]
    return tirx.SeqStmt([*(tirx.AllocBuffer(buffer) for buffer in cut.partial), *loops])


def _tile_loop(tilings: Sequence[Tiling]) -> Any:
    """One loop over the tiles of all tilings."""
    dtype = tilings[0].program.index_dtype
    number = tirx.Var("tile", dtype)
    start = sum(tiling.num_tiles for tiling in tilings)
    zero, count = tirx.const(0, dtype), tirx.const(start, dtype)
    body = None
    for tiling in reversed(tilings):
        start -= tiling.num_tiles
        tile = tiling.tile(number - start)
        later = start + tiling.num_tiles
        body = tile if body is None else tirx.IfThenElse(number < later, tile, body)
    return tirx.For(number, zero, count, tirx.ForKind.PARALLEL, body)
