"""The last axis of a pointwise block, cut into pieces among which no condition changes.

A concatenation is a copy per piece, a padding has an unconditional middle. Pieces at the ends that
are shorter than a vector, as those of a window over neighbours, are a vector together with their
neighbours: it computes both sides of a condition and selects. What it loads beyond the ends of a
row belongs to other rows, so that only the first and the last rows need the short pieces.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, Range

from tvm_rammer.kernel.blocks import is_choice, loads, variables
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.nodes import collect, substitute
from tvm_rammer.kernel.pointwise import Pointwise, coefficients
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

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
class Piece:
    """Points of the last axis among which no condition changes, and their vector width."""

    start: int
    length: int
    value: Any
    lanes: int

    @property
    def vectors(self) -> int:
        return ceil(self.length / self.lanes)


@dataclass(frozen=True)
class Pieces:
    """The last axis of a block.

    Attributes
    ----------
    exact : tuple of Piece
        Without a condition on the last axis.
    whole : tuple of Piece
        The same points where short pieces are part of a vector; empty if there are none.
    inside : tuple of PrimExpr
        When all that ``whole`` loads is inside of the buffers, in terms of the other axes.
    """

    exact: tuple[Piece, ...]
    whole: tuple[Piece, ...] = ()
    inside: tuple[Any, ...] = ()


def cut_into_pieces(block: Pointwise, vdevice: VDevice) -> Pieces:
    """Cut the last axis of a block where a condition on it changes."""
    last = block.axes[-1]
    cuts = sorted({0, last.extent, *_changes(block.value, last)})
    if len(cuts) > _MOST_PIECES + 1:
        cuts = [0, last.extent]
    exact = tuple(_piece(block, *ends, block.value, vdevice) for ends in pairwise(cuts))
    return _with_whole_vectors(block, exact, vdevice)


def _piece(block: Pointwise, start: int, stop: int, value: Any, vdevice: VDevice) -> Piece:
    analyzer = _analyzer(block)
    analyzer.bind(block.axes[-1].var, Range.from_min_extent(start, stop - start))
    value = analyzer.simplify(value)
    return Piece(start, stop - start, value, _lanes(block, value, stop - start, vdevice))


def _with_whole_vectors(block: Pointwise, exact: tuple[Piece, ...], vdevice: VDevice) -> Pieces:
    """Combine short pieces at the ends with as much of the long one between as makes a vector."""
    last, longest = block.axes[-1], max(exact, key=lambda piece: piece.length)
    lanes, start, stop = longest.lanes, longest.start, longest.start + longest.length
    short = any(piece.lanes < lanes for piece in exact)
    if not short or max(start, last.extent - stop) >= lanes or last.extent < lanes:
        return Pieces(exact)
    first, end = lanes * (start > 0), last.extent - lanes * (stop < last.extent)
    selected = _with_selections(block.value, last.var)
    ranges = [(0, first), (end, last.extent)]
    ends = [_piece(block, *ends, selected, vdevice) for ends in ranges if ends[0] < ends[1]]
    if any(piece.lanes < lanes for piece in ends):
        return Pieces(exact)
    analyzer = _analyzer(block)
    tests = [test for piece in ends for test in _inside(piece, last)]
    if any(analyzer.can_prove(tirx.Not(test)) for test in tests):
        return Pieces(exact)
    middle = [_piece(block, first, end, block.value, vdevice)] if first < end else []
    inside = [test for test in tests if not analyzer.can_prove(test)]
    return Pieces(exact, (*ends, *middle), tuple(inside))


def _analyzer(block: Pointwise) -> sym.Analyzer:
    """What the axes before the last one may be."""
    analyzer = sym.Analyzer()
    for axis in block.axes[:-1]:
        analyzer.bind(axis.var, Range.from_min_extent(0, axis.extent))
    return analyzer


def _with_selections(value: Any, var: Any) -> Any:
    """An expression that selects where it would branch depending on a variable."""

    def select(call: Any) -> Any:
        if not is_choice(call) or var not in variables(call.args[0]):
            return call
        return tirx.Select(*call.args)

    return tvm_ffi.structural_map(value, (Call, select))


def _inside(piece: Piece, last: Axis) -> list[Any]:
    """When the loads of a piece are inside of their buffers."""
    tests = []
    for load in loads(piece.value):
        (index,), (size,) = load.indices, load.source.shape
        ends = (piece.start, piece.start + piece.length - 1)
        first, final = (substitute(index, {last.var: tirx.const(end, last.dtype)}) for end in ends)
        tests += [first >= 0, final >= 0, first < size, final < size]
    return tests


def _changes(value: Any, axis: Axis) -> set[int]:
    """Points of an axis at which a comparison comes out otherwise than at the point before."""
    changes: set[int] = set()
    for comparison in collect(value, *_COMPARISONS):
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
    if interleaves(block):
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


def interleaves(block: Pointwise) -> bool:
    """Whether the last axis is a few streams, each contiguous along the axis before it."""
    if len(block.axes) < 2 or not 1 < block.axes[-1].extent <= _MOST_STREAMS:
        return False
    pair = [axis.var for axis in block.axes[-2:]]
    steps = [coefficients(load.indices[0], pair) for load in loads(block.value)]
    return any(step is not None and step[0] == 1 and abs(step[1]) > 1 for step in steps)


def _conditional(value: Any, var: Any) -> bool:
    """Whether a branch depends on a variable."""
    calls = collect(value, Call)
    return any(is_choice(call) and var in variables(call.args[0]) for call in calls)
