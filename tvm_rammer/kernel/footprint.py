"""Which part of each buffer every tile of a loop nest touches, by interval arithmetic.

Where the tiles of two operators run decides how much of a result crosses from one vEU to another,
and that costs more than most element-wise operators compute. A buffer is looked at as a matrix of
its innermost axis against all others, cut into :data:`CELLS` cells; a footprint says which of them
a range of tiles touches. What is only prefetched does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.ir import Call

from tvm_rammer.kernel.blocks import is_choice, loads
from tvm_rammer.kernel.nodes import parts_of
from tvm_rammer.rprogram.program import CELLS, TILE_RANGES, cell_rows

#: A number for each tile, or one for all of them: most are, and an array of one takes long.
_PerTile = int | npt.NDArray[np.int64]
#: The least and the greatest value of an expression.
_Interval = tuple[_PerTile, _PerTile]

#: The cells of one buffer as bits: ``[tile, word]``, or ``[word]`` for all tiles.
_Words = npt.NDArray[np.uint64]

_WORDS = CELLS // 64
_EVERY_WORD = np.uint64(2**64 - 1)
#: Most bounds of loops and many stored values, which need no walk.
_WITHOUT_LOADS = (tirx.IntImm, tirx.FloatImm, tirx.Var)


#: An instruction that brings data into a cache, and touches none.
PREFETCH = "tirx.prefetch"


class _UnknownError(Exception):
    """An index depends on data."""


#: Numbers of 64 bits and more are no places in a buffer.
_UNKNOWN = (_UnknownError, OverflowError)


class Matrix(NamedTuple):
    """A buffer as rows and columns, and the elements from one row to the next."""

    rows: int
    columns: int
    pitch: int

    @classmethod
    def of(cls, shape: tuple[int, ...], pitch: int | None = None) -> Matrix:
        """The innermost axis of a buffer against all others."""
        columns = max(1, shape[-1]) if shape else 1
        return cls(max(1, prod(shape[:-1])), columns, pitch or columns)


def footprints(
    nest: Any, numbers: Mapping[Any, int], matrices: Mapping[int, Matrix]
) -> dict[int, tuple[int, ...]]:
    """The cells of every buffer that each range of tiles touches.

    Parameters
    ----------
    nest : Stmt
        A loop nest; its outermost loop is the loop over tiles, or it is one tile. Its buffers may
        have any number of axes.
    numbers : mapping of buffer to int
        Of every buffer of interest; views of one buffer have the same number.
    matrices : mapping of int to Matrix
        What each number is.

    Returns
    -------
    dict of int to tuple of int
        By number a bit mask of cells for each tile, or for each of :data:`TILE_RANGES` equal
        ranges of them where there are more.
    """
    boxes = _Boxes(numbers, matrices)
    is_loop = isinstance(nest, tirx.For) and isinstance(nest.extent, tirx.IntImm)
    count = int(nest.extent) if is_loop and nest.kind == tirx.ForKind.PARALLEL else 1
    tiles = np.arange(count, dtype=np.int64)
    if count > 1:
        boxes.visit(nest.body, {nest.loop_var: (tiles, tiles)})
    else:
        boxes.visit(nest, {})
    return {
        number: _masks(np.broadcast_to(words, (count, _WORDS)))
        for number, words in boxes.cells.items()
    }


def _masks(words: _Words) -> tuple[int, ...]:
    """Bit masks of the ranges of tiles, given the cells of each tile."""
    count = len(words)
    ranges = min(count, TILE_RANGES)
    firsts = np.arange(ranges) * count // ranges
    lasts = -(-np.arange(1, ranges + 1) * count // ranges)
    return tuple(
        int.from_bytes(np.bitwise_or.reduce(words[first:last]).tobytes(), "little")
        for first, last in zip(firsts, lasts, strict=True)
    )


class _Boxes:
    """Collects the cells that accesses touch, by the numbers of buffers."""

    def __init__(self, numbers: Mapping[Any, int], matrices: Mapping[int, Matrix]) -> None:
        self.numbers = numbers
        self.matrices = matrices
        self.cells: dict[int, _Words] = {}

    def visit(self, statement: Any, known: dict[Any, _Interval]) -> None:
        if isinstance(statement, tirx.For):
            self._loads(statement.extent, known)
            known = self._inside(statement, known)
        elif isinstance(statement, tirx.SeqStmt):
            known = dict(known)
        elif isinstance(statement, tirx.IfThenElse):
            self._loads(statement.condition, known)
        elif isinstance(statement, tirx.BufferStore):
            self._access(statement.buffer, statement.indices, known)
            self._loads(statement.value, known)
        elif isinstance(statement, tirx.Bind | tirx.Evaluate) and not _is_prefetch(statement):
            self._loads(statement.value, known)
        for part in parts_of(statement):
            self.visit(part, known)
            if isinstance(part, tirx.Bind):
                self._bind(part, known)

    def _inside(self, loop: Any, known: dict[Any, _Interval]) -> dict[Any, _Interval]:
        """What is known inside of a loop; nothing of its variable if it runs as data say."""
        try:
            first, extent = _interval(loop.min, known), _interval(loop.extent, known)
        except _UNKNOWN:
            return known
        last = _greater(first[1] + extent[1] - 1, first[0])
        return {**known, loop.loop_var: (first[0], last)}

    def _bind(self, statement: Any, known: dict[Any, _Interval]) -> None:
        try:
            known[statement.var] = _interval(statement.value, known)
        except _UNKNOWN:
            known.pop(statement.var, None)

    def _loads(self, value: Any, known: dict[Any, _Interval]) -> None:
        if type(value) in _WITHOUT_LOADS:
            return
        for load in loads(value):
            self._access(load.source, load.indices, known)

    def _access(self, buffer: Any, indices: Any, known: dict[Any, _Interval]) -> None:
        number = self.numbers.get(buffer)
        if number is None:
            return
        before = self.cells.get(number)
        if before is not None and (before == _EVERY_WORD).all():
            return
        matrix = self.matrices[number]
        try:
            (top, bottom), (left, right) = _box(buffer, indices, known, matrix)
        except _UNKNOWN:
            top, bottom, left, right = 0, matrix.rows - 1, 0, matrix.columns - 1
        rows, columns = _first_cells(cell_rows(matrix.rows))
        cells = _spanned(top, bottom, matrix.rows, rows)
        cells = cells & _spanned(left, right, matrix.columns, columns)
        self.cells[number] = cells if before is None else before | cells


def _is_prefetch(statement: Any) -> bool:
    call = statement.value if isinstance(statement, tirx.Evaluate) else None
    return isinstance(call, Call) and getattr(call.op, "name", None) == PREFETCH


@lru_cache(maxsize=16)
def _first_cells(down: int) -> tuple[_Words, _Words]:
    """The cells of the first rows, and those of the first columns: of none, of one, ... of all."""
    cells = np.arange(CELLS).reshape(down, -1)
    axes = cells // cells.shape[1], cells % cells.shape[1]
    first, second = (
        np.packbits(
            axis.reshape(1, CELLS) < np.arange(axis.max() + 2)[:, None], axis=1, bitorder="little"
        ).view("<u8")
        for axis in axes
    )
    return first, second


def _spanned(first: _PerTile, last: _PerTile, length: int, firsts: _Words) -> _Words:
    """The cells of those equal parts of an axis that lie in an interval of it.

    ``firsts`` are the cells of the first parts, of none to all.
    """
    parts = len(firsts) - 1
    first, last = (_less(_greater(end, 0), length - 1) for end in (first, last))
    low = first * parts // length
    # Of an axis shorter than its parts, an element is several of them.
    stop = -(-(last + 1) * parts // length)
    found: _Words = firsts[low] ^ firsts[_greater(stop, low)]
    return found


def _box(
    buffer: Any, indices: Any, known: Mapping[Any, _Interval], matrix: Matrix
) -> tuple[_Interval, _Interval]:
    """Rows and columns of an access."""
    extents = [int(extent) for extent in buffer.shape]
    intervals = [_interval(index, known) for index in indices]
    if len(extents) > 1 and extents[-1] == matrix.columns:
        return _linear(intervals[:-1], extents[:-1]), intervals[-1]
    # A view of another shape, most often a flat one.
    low, high = _linear(intervals, extents)
    top, bottom = low // matrix.pitch, high // matrix.pitch
    one_row = top == bottom
    left = _where(one_row, low % matrix.pitch, 0)
    right = _where(one_row, high % matrix.pitch, matrix.columns - 1)
    return (top, bottom), (left, right)


def _linear(intervals: Sequence[_Interval], extents: Sequence[int]) -> _Interval:
    """Axes as one."""
    low: _PerTile = 0
    high: _PerTile = 0
    for (first, last), extent in zip(intervals, extents, strict=True):
        low, high = low * extent + first, high * extent + last
    return low, high


def _interval(node: Any, known: Mapping[Any, _Interval]) -> _Interval:
    """The values of an index expression."""
    # By the exact type: for other types than a node's own, TVM's isinstance takes long.
    kind = type(node)
    if kind in _OPERATIONS:
        return _OPERATIONS[kind](_interval(node.a, known), _interval(node.b, known))
    if kind is tirx.IntImm:
        value = int(node.value)
        return value, value
    if kind is tirx.Var:
        found = known.get(node)
        if found is None:
            raise _UnknownError
        return found
    if kind is tirx.Cast:
        return _interval(node.value, known)
    if isinstance(node, tirx.Select):
        return _either(_interval(node.true_value, known), _interval(node.false_value, known))
    if is_choice(node):
        return _either(_interval(node.args[1], known), _interval(node.args[2], known))
    raise _UnknownError


def _less(a: _PerTile, b: _PerTile) -> _PerTile:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    found: _PerTile = np.minimum(a, b)
    return found


def _greater(a: _PerTile, b: _PerTile) -> _PerTile:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    found: _PerTile = np.maximum(a, b)
    return found


def _where(condition: bool | npt.NDArray[np.bool_], a: _PerTile, b: _PerTile) -> _PerTile:
    if isinstance(condition, bool):
        return a if condition else b
    return np.where(condition, a, b)


def _either(a: _Interval, b: _Interval) -> _Interval:
    return _less(a[0], b[0]), _greater(a[1], b[1])


def _product(a: _Interval, b: _Interval) -> _Interval:
    corners = [x * y for x in a for y in b]
    return reduce(_less, corners), reduce(_greater, corners)


def _divisor(b: _Interval) -> int:
    """A divisor that is known and positive."""
    low, high = b
    if not isinstance(low, int) or not isinstance(high, int) or low != high or low <= 0:
        raise _UnknownError
    return low


def _quotient(a: _Interval, b: _Interval) -> _Interval:
    divisor = _divisor(b)
    return a[0] // divisor, a[1] // divisor


def _remainder(a: _Interval, b: _Interval) -> _Interval:
    divisor = _divisor(b)
    low, high = _quotient(a, b)
    whole = low != high
    return _where(whole, 0, a[0] % divisor), _where(whole, divisor - 1, a[1] % divisor)


_OPERATIONS: dict[Any, Callable[[_Interval, _Interval], _Interval]] = {
    tirx.Add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    tirx.Sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    tirx.Mul: _product,
    tirx.FloorDiv: _quotient,
    tirx.FloorMod: _remainder,
    tirx.Div: _quotient,
    tirx.Mod: _remainder,
    tirx.Min: lambda a, b: (_less(a[0], b[0]), _less(a[1], b[1])),
    tirx.Max: lambda a, b: (_greater(a[0], b[0]), _greater(a[1], b[1])),
}
