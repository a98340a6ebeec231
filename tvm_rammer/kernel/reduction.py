"""Reductions over the rows of a tensor, and everything made of them: softmax, normalisations.

A function qualifies when all its reductions run over the same rows. It then goes through its steps
row by row, so that what a step stores is still in the cache when the next one reads it, and in
vectors: along the row where its columns are neighbours in memory, across rows where these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.rows.across import AcrossRows
from tvm_rammer.kernel.rows.along import AlongRows
from tvm_rammer.kernel.rows.program import RowProgram, Step
from tvm_rammer.kernel.rows.recognise import recognise
from tvm_rammer.kernel.rows.stores import loads
from tvm_rammer.kernel.rows.vector_axis import vector_axis
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.vdevice import VDevice

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
        if any(_contracts(step, len(program.kept)) for step in program.steps):
            return None
        tiling = _tiling(program, vdevice)
        if tiling is None:
            return None
        body = _tile_loop(tiling, program.index_dtype)
        return Scheduled(main.with_body(body), self.name, tiling.tiling)


def _contracts(step: Step, num_kept: int) -> bool:
    """Whether a step sums products with a factor that several rows share.

    Such factors want to be used for several rows while they are in registers: see
    :class:`~.matmul.Matmul` and :class:`~.convolution.Convolution`.
    """
    kept = {var for var, axis in step.axes.items() if axis is not None and axis < num_kept}
    return any(
        step.reduces
        and isinstance(store.value, tirx.Mul)
        and any(kept - variables(load.indices) for load in loads(store.value))
        for store in step.stores
    )


def _tiling(program: RowProgram, vdevice: VDevice) -> Tiling | None:
    across = vector_axis(program, across=True, vdevice=vdevice)
    if across is not None:
        return AcrossRows(program, across, 8)
    along = vector_axis(program, across=False, vdevice=vdevice)
    return None if along is None else AlongRows(program, along)


def _tile_loop(tiling: Tiling, dtype: str) -> Any:
    tile = tirx.Var("tile", dtype)
    zero, count = tirx.const(0, dtype), tirx.const(tiling.num_tiles, dtype)
    return tirx.For(tile, zero, count, tirx.ForKind.PARALLEL, tiling.tile(tile))
