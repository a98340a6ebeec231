"""Rows whose columns are neighbours in memory: vectors run along the row.

Every reduction accumulates in the lanes of a few vectors, to hide the latency of an addition, and
combines them at the end of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.rows.accumulator import Accumulator
from tvm_rammer.backend.cpu.templates.rows.frame import Frame, Point
from tvm_rammer.backend.cpu.templates.rows.row_program import RowProgram, RowStep
from tvm_rammer.backend.cpu.templates.rows.vector_axis import VectorAxis
from tvm_rammer.backend.cpu.templates.rows.vector_loops import (
    UNROLLED,
    VectorRun,
    grid,
    pieces,
    sweep,
)
from tvm_rammer.kernel.loops import for_each, sequence, unravel

#: Independent vectors that a reduction accumulates in: latency times additions per cycle.
_ACCUMULATORS = 4
#: Elements that a tile has at least, where there are so many.
TILE = 1024


@dataclass(frozen=True)
class AlongRows:
    """Tiles of so many whole rows, which divide all of them."""

    program: RowProgram
    vector: VectorAxis
    rows_of_tile: int

    @property
    def num_tiles(self) -> int:
        return self.program.num_rows // self.rows_of_tile

    @property
    def tiling(self) -> str:
        return f"{self.rows_of_tile} x vectors of {self.vector.lanes} along the row"

    def tile(self, number: Any) -> Any:
        """The statements of one tile."""
        frame = Frame.of(self.program, 1)
        first = number * self.rows_of_tile
        dtype = self.program.index_dtype

        def one(row: Any) -> Any:
            return self._row(frame, first + row)

        return sequence([*frame.allocations, for_each("row", self.rows_of_tile, one, dtype=dtype)])

    def _row(self, frame: Frame, row: Any) -> Any:
        kept = unravel(row, self.program.kept)
        return sequence([self._step(frame, step, kept) for step in self.program.steps])

    def _step(self, frame: Frame, step: RowStep, kept: tuple[Any, ...]) -> Any:
        if step.reduces:
            return self._reduce(frame, step, kept)
        if not step.spans:
            return frame.map(step, self._row_point(kept))
        parts = pieces(self.vector.length, self.vector.lanes)

        def columns(outer: tuple[Any, ...]) -> Any:
            return sweep(
                parts,
                self.program.index_dtype,
                lambda index, _: frame.map(step, self._point(kept, outer, index)),
            )

        return grid(self.vector.outer, self.program.index_dtype, columns)

    def _row_point(self, kept: tuple[Any, ...]) -> Point:
        zero = tirx.const(0, self.program.index_dtype)
        return Point(kept + (zero,) * len(self.program.reduced), zero, zero)

    def _point(self, kept: tuple[Any, ...], outer: tuple[Any, ...], index: Any) -> Point:
        position: Any = tirx.const(0, self.program.index_dtype)
        for number, extent in zip(outer, self.vector.outer, strict=True):
            position = position * extent + number
        axes = (*kept, *outer, *unravel(index, self.vector.fused))
        zero = tirx.const(0, self.program.index_dtype)
        return Point(axes, zero, position * self.vector.length + index)

    def _reduce(self, frame: Frame, step: RowStep, kept: tuple[Any, ...]) -> Any:
        """Accumulate in vectors, combine these, store the results."""
        dtype = self.program.index_dtype
        full, *tail = pieces(self.vector.length, self.vector.lanes)
        count = min(_ACCUMULATORS, full.count)
        whole = (VectorRun(0, count, full.lanes),)
        sums = [Accumulator.of(store, whole, dtype) for store in step.stores]
        blocks, rest = divmod(full.count, count)
        block = count * full.lanes

        def add(outer: tuple[Any, ...], start: Any, parts: Sequence[VectorRun]) -> Any:
            def element(slot: Any, _: Any) -> Any:
                point = self._point(kept, outer, start + slot)
                terms = [s.add(frame.value(step, s.store.value, point), slot) for s in sums]
                return sequence(terms)

            return sweep(parts, dtype, element, UNROLLED)

        def columns(outer: tuple[Any, ...]) -> Any:
            main = for_each("block", blocks, lambda n: add(outer, n * block, whole), dtype=dtype)
            ends = [(blocks * block, rest, full.lanes)] if rest else []
            ends += [(piece.start, piece.count, piece.lanes) for piece in tail]
            return sequence([main, *(add(outer, s, (VectorRun(0, c, w),)) for s, c, w in ends)])

        point = self._row_point(kept)
        return sequence(
            [
                *(s.begin() for s in sums),
                grid(self.vector.outer, dtype, columns),
                *(statement for s in sums for statement in s.combine()),
                *(frame.store(step, s.store, s.get(point.row), point) for s in sums),
            ]
        )
