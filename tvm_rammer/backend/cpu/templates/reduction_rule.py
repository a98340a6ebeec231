"""Reductions over the rows of a tensor, and everything made of them: softmax, normalisations.

A function qualifies when all its reductions run over the same rows. It then goes through its steps
row by row, so that what a step stores is still in the cache when the next one reads it, and in
vectors: along the row where its columns are neighbours in memory, across rows where these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.finer import VERY_LARGE_DEVICE, Option, finer_tilings
from tvm_rammer.backend.cpu.templates.rows.across import AcrossRows
from tvm_rammer.backend.cpu.templates.rows.along import TILE, AlongRows
from tvm_rammer.backend.cpu.templates.rows.parts import in_parts
from tvm_rammer.backend.cpu.templates.rows.recognise import recognise
from tvm_rammer.backend.cpu.templates.rows.row_program import RowProgram, RowStep
from tvm_rammer.backend.cpu.templates.rows.vector_axis import vector_axis
from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice

#: Vectors of rows in a tile: enough that what is read lies together.
_VECTORS = 8
#: Vectors of rows in a tile at most, and how many times the usual rows a tile has at most.
_MOST_VECTORS, _LARGER = 16, 4
#: Fewer tiles than this leave vEUs idle.
_FEW_TILES = 16
#: Up to so many rows of a factor, products are summed up along the other one's rows where they lie.
FEW_ROWS = 4

Tiling = AlongRows | AcrossRows


@dataclass(frozen=True)
class RowTile:
    """A configuration: so many rows, or vectors of rows, in a tile; 0 where rows are in parts."""

    size: int

    def __str__(self) -> str:
        return f"tiles of {self.size}" if self.size else "in parts"


@dataclass(frozen=True)
class PartedRows:
    """Tilings of the parts of rows, which write the ``partial`` buffers, and of the results."""

    parts: tuple[Tiling, ...]
    whole: Tiling
    partial: tuple[tirx.Var, ...]

    def statement(self) -> Any:
        """A loop over the parts, and one over the results."""
        loops = [_tile_loop(self.parts), _tile_loop([self.whole])]
        return tirx.SeqStmt([*(tirx.AllocBuffer(buffer) for buffer in self.partial), *loops])


@dataclass(frozen=True)
class ReducedRows:
    """A function of rows, in the tiling that is usual for them, on a device."""

    main: tirx.PrimFunc
    tiling: Tiling
    parted: PartedRows | None
    vdevice: VDevice

    def sizes(self) -> list[RowTile]:
        """All sizes of tiles of whole rows, the largest first."""
        program, tiling = self.tiling.program, self.tiling
        if isinstance(tiling, AcrossRows):
            most = min(_MOST_VECTORS, ceil(tiling.vector.length / tiling.vector.lanes))
            return [RowTile(n) for n in range(most, 0, -1)]
        most = min(program.num_rows, _LARGER * tiling.rows_of_tile)
        return [RowTile(n) for n in range(most, 0, -1) if program.num_rows % n == 0]

    def tiled(self, tile: RowTile) -> Tiling:
        """The tiling with tiles of another size."""
        if isinstance(self.tiling, AcrossRows):
            return replace(self.tiling, vectors=tile.size)
        return replace(self.tiling, rows_of_tile=tile.size)

    @property
    def usual(self) -> RowTile:
        """The size of tiles that is usual."""
        tiling = self.tiling
        return RowTile(tiling.vectors if isinstance(tiling, AcrossRows) else tiling.rows_of_tile)

    def option(self, tile: RowTile) -> Option[RowTile]:
        """The number of tiles, and what it takes to get the elements of each."""
        program, count = self.tiling.program, self.tiled(tile).num_tiles
        nbytes = program.num_rows * program.num_columns * program.lane_bytes
        speeds = self.vdevice.speeds
        return Option(tile, count, nbytes / speeds.cache_bytes / count + speeds.cycles.task)


@dataclass(frozen=True)
class Reduction(Template[ReducedRows, RowTile]):
    """Schedules functions whose reductions all run over the same rows."""

    name: str = "reduction"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> ReducedRows | None:
        """As in :meth:`.Template.match`."""
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
        return ReducedRows(main, tiling, _parted(tiling, vdevice), vdevice)

    def space(self, found: ReducedRows) -> list[RowTile]:
        """All sizes of tiles, and parts of rows where these are few."""
        return [*([RowTile(0)] if found.parted else []), *found.sizes()]

    def usual(self, found: ReducedRows) -> list[RowTile]:
        """Few rows in parts, many in tiles, and in smaller ones for larger devices."""
        if found.parted is not None:
            return [RowTile(0)]
        usual, count = found.option(found.usual), found.vdevice.num_veus
        smaller = [found.option(tile) for tile in found.sizes() if tile.size < found.usual.size]
        return [usual.tiling, *finer_tilings(usual, smaller, count, VERY_LARGE_DEVICE)]

    def emit(self, found: ReducedRows, configuration: RowTile) -> Scheduled:
        """One size of tiles, or parts."""
        if configuration.size == 0 and found.parted is not None:
            body, words = found.parted.statement(), f"{found.tiling.tiling}, in parts"
        else:
            tiling = found.tiled(configuration)
            body, words = _tile_loop([tiling]), tiling.tiling
        return Scheduled(found.main.with_body(body), self.name, words)

    def rounding(self, configuration: RowTile) -> tuple[bool]:
        """Every row is summed up in the same order, but for its parts."""
        return (configuration.size == 0,)


def _sharing_rows(step: RowStep, kept: tuple[int, ...]) -> int:
    """How many rows share the less shared factor of the products that a step sums up, if it does.

    Such factors want to be used for several rows while they are in registers: see
    :class:`~.outer_product_rules.Matmul` and :class:`~.outer_product_rules.Convolution`.
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
    if along is None:
        return None
    most = min(max(1, TILE // program.num_columns), program.num_rows)
    rows = next(n for n in range(most, 0, -1) if program.num_rows % n == 0)
    return AlongRows(program, along, rows)


def _parted(tiling: Tiling, vdevice: VDevice) -> PartedRows | None:
    """The parts of rows, when these are too few to be shared."""
    if tiling.num_tiles >= _FEW_TILES:
        return None
    cut = in_parts(tiling.program, tiling.num_tiles, across=isinstance(tiling, AcrossRows))
    if cut is None:
        return None
    tilings = [_tiling(program, vdevice) for program in cut.parts]
    parts = tuple(part for part in tilings if part is not None)
    whole = _tiling(cut.whole, vdevice)
    if whole is None or len(parts) < len(tilings):
        return None
    return PartedRows(parts, whole, tuple(cut.partial))


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
