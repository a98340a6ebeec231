"""Rows that are neighbours in memory: every lane of a vector computes a row of its own."""

from __future__ import annotations

from collections.abc import Callable
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
from tvm_rammer.kernel.loops import sequence, unravel


@dataclass(frozen=True)
class AcrossRows:
    """Tiles of a few vectors of rows.

    Attributes
    ----------
    program : RowProgram
    vector : VectorAxis
    vectors : int
        Vectors of a tile; the last tile along the vector axis may have fewer.
    """

    program: RowProgram
    vector: VectorAxis
    vectors: int

    @property
    def width(self) -> int:
        """Rows of a tile."""
        return min(self.vectors * self.vector.lanes, self.vector.length)

    @property
    def num_tiles(self) -> int:
        return self.program.num_rows // self.vector.length * self._chunks

    @property
    def _chunks(self) -> int:
        return -(-self.vector.length // self.width)

    @property
    def tiling(self) -> str:
        return f"{self.vectors} vectors of {self.vector.lanes} rows"

    def tile(self, number: Any) -> Any:
        """The statements of one tile."""
        frame = Frame.of(self.program, self.width)
        outer = unravel(number // self._chunks, self.vector.outer)
        chunk = number % self._chunks
        full, rest = divmod(self.vector.length, self.width)

        def rows(count: int) -> Any:
            return self._rows(frame, outer, chunk * self.width, pieces(count, self.vector.lanes))

        body = rows(self.width) if full else None
        if rest:
            body = tirx.IfThenElse(chunk < full, body, rows(rest))
        return sequence([*frame.allocations, body])

    def _rows(
        self, frame: Frame, outer: tuple[Any, ...], first: Any, parts: tuple[VectorRun, ...]
    ) -> Any:
        dtype = self.program.index_dtype
        zero = tirx.const(0, dtype)

        def point(columns: tuple[Any, ...], row: Any) -> Point:
            position: Any = zero
            for index, extent in zip(columns, self.program.reduced, strict=True):
                position = position * extent + index
            kept = (*outer, *unravel(first + row, self.vector.fused))
            return Point((*kept, *columns), row, position)

        def every_row(columns: tuple[Any, ...], statement: Callable[[Point], Any]) -> Any:
            return sweep(parts, dtype, lambda row, _: statement(point(columns, row)), UNROLLED)

        row_only = (zero,) * len(self.program.reduced)

        def run(step: RowStep) -> Any:
            if not step.reduces:
                extents = self.program.reduced if step.spans else ()
                return grid(
                    extents,
                    dtype,
                    lambda c: every_row(c or row_only, lambda p: frame.map(step, p)),
                )
            sums = [Accumulator.of(store, parts, dtype) for store in step.stores]

            def add(p: Point) -> Any:
                return sequence([s.add(frame.value(step, s.store.value, p), p.row) for s in sums])

            def finish(p: Point) -> Any:
                return sequence([frame.store(step, s.store, s.get(p.row), p) for s in sums])

            return sequence(
                [
                    *(s.begin() for s in sums),
                    grid(self.program.reduced, dtype, lambda c: every_row(c, add)),
                    every_row(row_only, finish),
                ]
            )

        return sequence([run(step) for step in self.program.steps])
