"""The loop nest of a pointwise block: tiles of neighbouring points, vectors, no conditions inside.

The last axis is cut where a condition on it changes, so that a concatenation is a copy per piece
and a padding has an unconditional middle. A piece that is no multiple of the vector width ends with
a vector that overlaps the one before: both store the same values, and no point is left over. A
short last axis, whose neighbours are read from streams far apart, is unrolled instead: LLVM makes
vectors of every stream, and interleaves them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Call, Op, Range

from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.pointwise import (
    Axis,
    FlatViews,
    Pointwise,
    coefficients,
    loads,
    merged,
    substitute,
)
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.rprogram import dtype_bytes
from tvm_rammer.vdevice import VDevice

#: Loads and stores that a tile aims at: some hundred nanoseconds, and many tiles to share out.
_TILE_ACCESSES = 4096
#: A last axis with more pieces than this stays one loop with conditions.
_MOST_PIECES = 64
#: Shorter vectors than this gain nothing.
_FEWEST_LANES = 4
#: Most streams that are interleaved.
_MOST_STREAMS = 8

_COMPARISONS: dict[Any, Callable[[int, int], bool]] = {
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
}


@dataclass(frozen=True)
class TiledNest:
    """A parallel loop over tiles, and what a tile is, in words."""

    statement: Any
    tiling: str


def tiled_nest(block: Pointwise, vdevice: VDevice, together: int = 1) -> TiledNest:
    """Make the loop nest of a block for a device.

    Parameters
    ----------
    block : Pointwise
    vdevice : VDevice
    together : int
        So many neighbours along the axis before the last are computed together, so that what they
        have in common is computed once.
    """
    block = merged(block)
    if not block.axes:
        return TiledNest(tirx.BufferStore(block.target, block.value, [block.index]), "one value")
    return _Builder.of(block, _pieces(block, vdevice), together).build()


def with_nests(
    func: tirx.PrimFunc, views: FlatViews, nests: Sequence[TiledNest], origin: str
) -> Scheduled:
    """What a rule returns that replaces the body of a PrimFunc by nests on flat views."""
    body = tirx.SeqStmt([*views.declarations(), *(nest.statement for nest in nests)])
    # Relax asks every PrimFunc for its root block.
    root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
    return Scheduled(func.with_body(root), origin, ", ".join(nest.tiling for nest in nests))


@dataclass(frozen=True)
class _Piece:
    """Points of the last axis among which no condition changes, and their vector width."""

    start: int
    length: int
    value: Any
    lanes: int

    @property
    def vectors(self) -> int:
        return ceil(self.length / self.lanes)


@dataclass(frozen=True)
class _Builder:
    """Makes the nest of a merged block.

    ``cut`` is the axis that tiles divide into ``parts``. The axis before the last is walked in
    steps of ``together`` points.
    """

    block: Pointwise
    pieces: tuple[_Piece, ...]
    together: int
    cut: int
    parts: int

    @classmethod
    def of(cls, block: Pointwise, pieces: tuple[_Piece, ...], together: int) -> _Builder:
        accesses = 1 + max(len(loads(piece.value)) for piece in pieces)
        work = [axis.extent for axis in block.axes]
        for number in range(len(work) - 2, -1, -1):
            work[number] *= work[number + 1]
        last = len(work) - 1
        if last < 2 or together > block.axes[-2].extent:
            together = 1
        fits = (k for k in range(last) if work[k + 1] * accesses <= _TILE_ACCESSES)
        cut = min(next(fits, last), last if together == 1 else last - 2)
        wanted = max(1, round(work[cut] * accesses / _TILE_ACCESSES))
        if cut < last:
            parts = _near_divisor(block.axes[cut].extent, wanted)
            return cls(block, pieces, together, cut, parts)
        # A vector that overlaps the one before must find it in its own tile.
        most = min(piece.vectors // (2 if piece.length % piece.lanes else 1) for piece in pieces)
        return cls(block, pieces, 1, cut, max(1, min(wanted, most)))

    def build(self) -> TiledNest:
        dtype = self.block.axes[0].dtype
        tile = tirx.Var("tile", dtype)
        count = prod(axis.extent for axis in self.block.axes[: self.cut]) * self.parts
        outer, part = _place(tile, self.parts)
        places: dict[Any, Any] = {}
        for axis in reversed(self.block.axes[: self.cut]):
            outer, places[axis.var] = _place(outer, axis.extent)
        body = self._rows(self.cut, places, part, self.parts)
        bounds = (tirx.const(0, dtype), tirx.const(count, dtype))
        loop = tirx.For(tile, *bounds, tirx.ForKind.PARALLEL, body)
        return TiledNest(loop, f"{count} tiles of {self._words(count)}")

    def _words(self, count: int) -> str:
        points = prod(axis.extent for axis in self.block.axes)
        if _interleaves(self.block):
            return (
                f"{ceil(points / count)} points, {self.block.axes[-1].extent} streams interleaved"
            )
        widths = sorted({piece.lanes for piece in self.pieces}, reverse=True)
        return f"{ceil(points / count)} points in vectors of {'/'.join(map(str, widths))}"

    def _rows(self, number: int, places: dict[Any, Any], part: Any, parts: int) -> Any:
        """The loops from an axis on; of that axis only one of so many parts."""
        axis = self.block.axes[number]
        last = len(self.block.axes) - 1
        if number == last:
            return _sequence([self._row(piece, [places], part, parts) for piece in self.pieces])
        zero = tirx.const(0, axis.dtype)
        if number == last - 1 and self.together > 1:
            return self._several_rows(axis, places)
        return _share(
            axis, part, parts, lambda at: self._rows(number + 1, {**places, axis.var: at}, zero, 1)
        )

    def _several_rows(self, axis: Axis, places: dict[Any, Any]) -> Any:
        zero = tirx.const(0, axis.dtype)
        steps = Axis(axis.var, ceil(axis.extent / self.together))

        def step(number: Any) -> Any:
            first = _start(number, self.together, axis.extent)
            rows = [{**places, axis.var: first + k} for k in range(self.together)]
            return _sequence([self._row(piece, rows, zero, 1) for piece in self.pieces])

        return _share(steps, zero, 1, step)

    def _row(self, piece: _Piece, rows: list[dict[Any, Any]], part: Any, parts: int) -> Any:
        """The vectors of one piece of the last axis, or those of one of so many parts."""
        last = self.block.axes[-1]
        lane = tirx.Var("lane", last.dtype)

        def vector(number: Any) -> Any:
            first = _start(number, piece.lanes, piece.length)
            at = first + piece.start + (lane if piece.lanes > 1 else 0)
            stores = _sequence([self._store(piece, {**row, last.var: at}) for row in rows])
            if piece.lanes == 1:
                return stores
            bounds = (tirx.const(0, last.dtype), tirx.const(piece.lanes, last.dtype))
            return tirx.For(lane, *bounds, tirx.ForKind.VECTORIZED, stores)

        if _interleaves(self.block):
            return _sequence([vector(tirx.const(k, last.dtype)) for k in range(piece.length)])
        vectors = Axis(tirx.Var("vector", last.dtype), piece.vectors)
        return _share(vectors, part, parts, vector)

    def _store(self, piece: _Piece, values: dict[Any, Any]) -> Any:
        index, value = substitute(self.block.index, values), substitute(piece.value, values)
        return tirx.BufferStore(self.block.target, value, [index])


def _place(number: Any, extent: int) -> tuple[Any, Any]:
    """Position on the axes outside of one, and on that one."""
    return tirx.floordiv(number, extent), tirx.floormod(number, extent)


def _start(number: Any, step: int, extent: int) -> Any:
    """Where a group of ``step`` points begins: the last one overlaps if it would not fit."""
    first = number * step
    return tirx.min(first, tirx.const(extent - step, str(first.ty))) if extent % step else first


def _near_divisor(extent: int, wanted: int) -> int:
    """A divisor of an extent between ``wanted`` and twice that, else ``wanted`` itself."""
    wanted = min(wanted, extent)
    return next((n for n in range(wanted, 2 * wanted + 1) if extent % n == 0), wanted)


def _share(axis: Axis, part: Any, parts: int, body: Callable[[Any], Any]) -> Any:
    """A loop over one part of an axis; the lengths of the parts differ by one at most."""
    if parts == axis.extent:
        return body(part)
    var, zero = tirx.Var(axis.var.name, axis.dtype), tirx.const(0, axis.dtype)
    start, count = part * (axis.extent // parts), tirx.const(axis.extent // parts, axis.dtype)
    if axis.extent % parts:
        start = tirx.floordiv(part * axis.extent, parts)
        count = tirx.floordiv((part + 1) * axis.extent, parts) - start
    return tirx.For(var, zero, count, tirx.ForKind.SERIAL, body(start + var))


def _sequence(statements: list[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def _pieces(block: Pointwise, vdevice: VDevice) -> tuple[_Piece, ...]:
    """The last axis, cut where a condition on it changes."""
    last = block.axes[-1]
    cuts = sorted({0, last.extent, *_changes(block.value, last)})
    if len(cuts) > _MOST_PIECES + 1:
        cuts = [0, last.extent]
    pieces = []
    for start, stop in pairwise(cuts):
        analyzer = sym.Analyzer()
        for axis in block.axes[:-1]:
            analyzer.bind(axis.var, Range.from_min_extent(0, axis.extent))
        analyzer.bind(last.var, Range.from_min_extent(start, stop - start))
        value = analyzer.simplify(block.value)
        lanes = _lanes(block, value, stop - start, vdevice)
        pieces.append(_Piece(start, stop - start, value, lanes))
    return tuple(pieces)


def _changes(value: Any, axis: Axis) -> set[int]:
    """Points of an axis at which a comparison comes out otherwise than at the point before."""
    found: list[Any] = []
    tvm_ffi.structural_walk(value, (tuple(_COMPARISONS), found.append))
    changes: set[int] = set()
    for comparison in found:
        if str(comparison.a.ty) != axis.dtype:
            continue
        linear = sym.detect_linear_equation(comparison.a - comparison.b, [axis.var])
        if not linear or not all(isinstance(term, tirx.IntImm) for term in linear):
            continue
        step, base = map(int, linear)
        root = -base // step if step else 0
        holds = _COMPARISONS[type(comparison)]
        for point in (root, root + 1):
            before, after = base + step * (point - 1), base + step * point
            if 0 < point < axis.extent and holds(before, 0) != holds(after, 0):
                changes.add(point)
    return changes


def _lanes(block: Pointwise, value: Any, length: int, vdevice: VDevice) -> int:
    """The vector width of a piece of the last axis; 1 leaves the loop to LLVM."""
    if _interleaves(block):
        return 1
    last = block.axes[-1].var
    accesses = loads(value)
    steps = [coefficients(load.indices[0], [last]) for load in accesses]
    # LLVM itself combines every second element better than it does a vector load with that step.
    if any(step is None or abs(step[0]) == 2 for step in steps) or _conditional(value, last):
        return 1
    varied = [load.source for load, step in zip(accesses, steps, strict=True) if step != [0]]
    widest = max(dtype_bytes(str(buffer.dtype)) for buffer in [block.target, *varied])
    lanes = min(vdevice.vector_bytes // widest, 1 << (length.bit_length() - 1))
    return lanes if lanes >= _FEWEST_LANES else 1


def _interleaves(block: Pointwise) -> bool:
    """Whether the last axis is a few streams, each contiguous along the axis before it."""
    if len(block.axes) < 2 or not 1 < block.axes[-1].extent <= _MOST_STREAMS:
        return False
    pair = [axis.var for axis in block.axes[-2:]]
    steps = [coefficients(load.indices[0], pair) for load in loads(block.value)]
    return any(step is not None and step[0] == 1 and abs(step[1]) > 1 for step in steps)


def _conditional(value: Any, var: Any) -> bool:
    """Whether a branch depends on a variable."""
    found: list[bool] = []

    def visit(call: Any) -> None:
        if isinstance(call.op, Op) and call.op.name == "tirx.if_then_else":
            found.append(var in variables(call.args[0]))

    tvm_ffi.structural_walk(value, (Call, visit))
    return any(found)
