"""The loop nest of a pointwise block: tiles of neighbouring points, vectors, no conditions inside.

The last axis is cut into pieces without conditions (``pieces``). A piece that
is no multiple of the vector width ends with a vector that overlaps the one before: both store the
same values, and no point is left over. A short last axis, whose neighbours are read from streams
far apart, is unrolled instead: LLVM makes vectors of every stream, and interleaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.backend.cpu.templates.pieces import Piece, Pieces, cut_into_pieces, interleaves
from tvm_rammer.kernel.blocks import loads
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.kernel.pointwise import FlatViews, Pointwise, merged
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.machine import VDevice

#: Loads and stores that a tile aims at: some hundred nanoseconds, and many tiles to share out.
TILE_ACCESSES = 4096
#: Fewer points of an axis that is walked inside of vectors would waste the lines that they read.
_FEWEST_INSIDE = 64


@dataclass(frozen=True)
class TiledNest:
    """A parallel loop over tiles.

    Attributes
    ----------
    statement : callable
        Makes it.
    tiling : str
        What a tile is, in words.
    num_tiles : int
    accesses : int
        Loads and stores of all points.
    """

    statement: Callable[[], Any]
    tiling: str
    num_tiles: int = 1
    accesses: int = 1

    def tile_cycles(self, vdevice: VDevice, itemsize: int) -> float:
        """Modelled cycles of a tile, which finds its elements in the last-level cache."""
        speeds = vdevice.speeds
        return self.accesses * itemsize / speeds.cache_bytes / self.num_tiles + speeds.cycles.task


@dataclass(frozen=True)
class CutBlock:
    """A block with merged axes whose last axis is cut, which is the same for tiles of any size.

    Attributes
    ----------
    block : Pointwise
    pieces : Pieces, optional
        Of the last axis; ``None`` if there are no axes.
    inside : Axis, optional
        An axis of the block that is walked inside of every vector of the last one.
    """

    block: Pointwise
    pieces: Pieces | None
    inside: Axis | None = None

    @classmethod
    def of(cls, block: Pointwise, vdevice: VDevice, inside: Axis | None = None) -> CutBlock:
        """Cut a block for a device; with an axis ``inside`` all of its axes are merged already."""
        block = merged(block) if inside is None else block
        return cls(block, cut_into_pieces(block, vdevice) if block.axes else None, inside)


def tiled_nest(cut: CutBlock, tile_accesses: int, together: int = 1) -> TiledNest:
    """Make the loop nest of a block.

    Parameters
    ----------
    cut : CutBlock
    tile_accesses : int
        Loads and stores that a tile aims at.
    together : int
        So many neighbours along the axis before the last are computed together, so that what they
        have in common is computed once; none where an axis is walked inside.
    """
    block, pieces = cut.block, cut.pieces
    if pieces is None:
        store = tirx.BufferStore(block.target, block.value, [block.index])
        return TiledNest(lambda: store, "one value")
    if cut.inside is not None:
        return _Builder.across(block, pieces, cut.inside, tile_accesses).nest()
    return _Builder.of(block, pieces, together, tile_accesses).nest()


def with_nests(
    func: tirx.PrimFunc,
    views: FlatViews,
    nests: Sequence[TiledNest],
    origin: str,
    between: Sequence[Any] = (),
) -> Scheduled:
    """What a rule returns that replaces the body of a PrimFunc by nests on flat views.

    Buffers ``between`` the nests are allocated before them.
    """
    allocated = [tirx.AllocBuffer(buffer) for buffer in between]
    nested = [nest.statement() for nest in nests]
    body = tirx.SeqStmt([*allocated, *views.declarations(), *nested])
    # Relax asks every PrimFunc for its root block.
    root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
    return Scheduled(func.with_body(root), origin, ", ".join(nest.tiling for nest in nests))


@dataclass(frozen=True)
class _Builder:
    """Makes the nest of a merged block.

    ``cut`` is the axis that tiles divide into ``parts``. The axis before the last is walked in
    steps of ``together`` points. The axis ``inside``, which is none of the block's, is walked in
    every vector, by one of so many ``inside_parts``.
    """

    block: Pointwise
    pieces: Pieces
    together: int
    cut: int
    parts: int
    inside: Axis | None = None
    inside_parts: int = 1

    @classmethod
    def of(cls, block: Pointwise, pieces: Pieces, together: int, wished: int) -> _Builder:
        accesses = _accesses(pieces)
        work = [axis.extent for axis in block.axes]
        for number in range(len(work) - 2, -1, -1):
            work[number] *= work[number + 1]
        last = len(work) - 1
        if last < 2 or together > block.axes[-2].extent:
            together = 1
        fits = (k for k in range(last) if work[k + 1] * accesses <= wished)
        cut = min(next(fits, last), last if together == 1 else last - 2)
        wanted = max(1, round(work[cut] * accesses / wished))
        if cut < last:
            parts = _near_divisor(block.axes[cut].extent, wanted)
            return cls(block, pieces, together, cut, parts)
        return cls(block, pieces, 1, cut, max(1, min(wanted, _most_parts(pieces))))

    @classmethod
    def across(cls, block: Pointwise, pieces: Pieces, inside: Axis, wished: int) -> _Builder:
        """A nest that walks an axis inside of the vectors of the last one."""
        accesses = _accesses(pieces)
        others = tuple(axis for axis in block.axes if axis is not inside)
        points = others[-1].extent * inside.extent
        wanted = max(1, round(points * accesses / wished))
        parts = max(1, min(wanted, _most_parts(pieces)))
        inside_parts = max(1, min(round(wanted / parts), inside.extent // _FEWEST_INSIDE))
        rest = replace(block, axes=others)
        return cls(rest, pieces, 1, len(others) - 1, parts, inside, inside_parts)

    def nest(self) -> TiledNest:
        """What is known of the nest without making it."""
        count = prod(axis.extent for axis in self.block.axes[: self.cut])
        count *= self.parts * self.inside_parts
        points = prod(axis.extent for axis in self.block.axes)
        points *= self.inside.extent if self.inside else 1
        tiling = f"{count} tiles of {self._words(ceil(points / count))}"
        return TiledNest(
            partial(self._build, count), tiling, count, points * _accesses(self.pieces)
        )

    def _build(self, count: int) -> Any:
        dtype = self.block.axes[0].dtype
        tile = tirx.Var("tile", dtype)
        outer, part = _place(tile, self.parts)
        places: dict[Any, Any] = {}
        if self.inside is not None:
            outer, places[self.inside.var] = _place(outer, self.inside_parts)
        for axis in reversed(self.block.axes[: self.cut]):
            outer, places[axis.var] = _place(outer, axis.extent)
        body = self._rows(self.cut, places, part, self.parts)
        bounds = (tirx.const(0, dtype), tirx.const(count, dtype))
        return tirx.For(tile, *bounds, tirx.ForKind.PARALLEL, body)

    def _words(self, points: int) -> str:
        if interleaves(self.block):
            return f"{points} points, {self.block.axes[-1].extent} streams interleaved"
        widths = sorted({piece.lanes for piece in self.pieces.exact}, reverse=True)
        return f"{points} points in vectors of {'/'.join(map(str, widths))}"

    def _rows(self, number: int, places: dict[Any, Any], part: Any, parts: int) -> Any:
        """The loops from an axis on; of that axis only one of so many parts."""
        axis = self.block.axes[number]
        last = len(self.block.axes) - 1
        if number == last:
            return self._points([places], part, parts)
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
            return self._points(rows, zero, 1)

        return _share(steps, zero, 1, step)

    def _points(self, rows: list[dict[Any, Any]], part: Any, parts: int) -> Any:
        """The last axis of some rows, or one of so many parts of every piece of it."""
        exact, whole = (
            sequence([self._row(piece, rows, part, parts) for piece in pieces])
            for pieces in (self.pieces.exact, self.pieces.whole or self.pieces.exact)
        )
        # Tests in terms of an axis that is walked further inside say nothing here.
        tested = self.inside is not None and bool(self.pieces.inside)
        if parts > 1 or not self.pieces.whole or tested:
            return exact
        inside = [substitute(test, row) for row in rows for test in self.pieces.inside]
        return tirx.IfThenElse(tirx.all(*inside), whole, exact) if inside else whole

    def _row(self, piece: Piece, rows: list[dict[Any, Any]], part: Any, parts: int) -> Any:
        """The vectors of one piece of the last axis, or those of one of so many parts."""
        last = self.block.axes[-1]
        lane = tirx.Var("lane", last.dtype)

        def vector(number: Any) -> Any:
            first = _start(number, piece.lanes, piece.length)
            at = first + piece.start + (lane if piece.lanes > 1 else 0)
            if self.inside is None:
                return lanes([{**row, last.var: at} for row in rows])
            (row,) = rows
            inside, of_inside = self.inside, row[self.inside.var]

            def step(place: Any) -> Any:
                return lanes([{**row, last.var: at, inside.var: place}])

            return _share(inside, of_inside, self.inside_parts, step)

        def lanes(places: list[dict[Any, Any]]) -> Any:
            stores = sequence([self._store(piece, values) for values in places])
            if piece.lanes == 1:
                return stores
            bounds = (tirx.const(0, last.dtype), tirx.const(piece.lanes, last.dtype))
            return tirx.For(lane, *bounds, tirx.ForKind.VECTORIZED, stores)

        if interleaves(self.block):
            return sequence([vector(tirx.const(k, last.dtype)) for k in range(piece.length)])
        vectors = Axis(tirx.Var("vector", last.dtype), piece.vectors)
        return _share(vectors, part, parts, vector)

    def _store(self, piece: Piece, values: dict[Any, Any]) -> Any:
        index, value = substitute(self.block.index, values), substitute(piece.value, values)
        return tirx.BufferStore(self.block.target, value, [index])


def _accesses(pieces: Pieces) -> int:
    """Loads and stores of a point."""
    return 1 + max(len(loads(piece.value)) for piece in pieces.exact)


def _most_parts(pieces: Pieces) -> int:
    """How many parts the last axis can have: a vector that overlaps the one before must find it in
    its own tile."""
    lengths = [(piece.vectors, piece.length % piece.lanes) for piece in pieces.exact]
    return min(vectors // (2 if ragged else 1) for vectors, ragged in lengths)


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
