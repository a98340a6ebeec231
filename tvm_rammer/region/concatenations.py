"""Concatenations without copies: who makes an operand writes it where it will be read.

The result of a concatenation is a matrix, the axes before the concatenated one by all others, and
every operand is some of its columns. An operand that an operator of the region makes becomes a
*part* of the result (see :class:`~tvm_rammer.rprogram.Buffer`); any other, say an input, is copied
into its part by an operator of its own. So the concatenation itself has nothing left to do.

The last concatenation chooses first: where one is an operand of the next (DenseNet), the parts of
both lie in the last one's result, and one whose operands already lie side by side there is a part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import prod

from tvm import te, tirx
from tvm.ir import GenericConst

from tvm_rammer.region.region_calls import RegionCalls, TensorCall
from tvm_rammer.rprogram import Buffer, dtype_bytes
from tvm_rammer.rprogram.rows import row_strides

#: Attribute of a PrimFunc that concatenates and does nothing else: the axis, from 0.
CONCATENATION = "tvm_rammer.concatenation"

#: Fewest bytes of a row of a part: the cache lines of shorter ones would belong to several vEUs.
SHORTEST_ROW = 64


def concatenate_in_place(region: RegionCalls, alignment: int) -> RegionCalls:
    """Let operators write the operands of concatenations into the results.

    Parameters
    ----------
    region : RegionCalls
    alignment : int
        Bytes; a concatenation whose operands begin at other places than multiples stays.
    """
    placing = _Placing(list(region.buffers), region.calls, alignment)
    replaced = [
        placing.replacement(call) if axis_of(call.func) is not None else [call]
        for call in reversed(region.calls)
    ]
    calls = tuple(call for some in reversed(replaced) for call in some)
    return RegionCalls(tuple(placing.buffers), calls)


def axis_of(func: tirx.PrimFunc) -> int | None:
    """Along which axis a PrimFunc concatenates, None if it is no concatenation."""
    marked = func.attrs and CONCATENATION in func.attrs
    return int(func.attrs[CONCATENATION]) if marked else None


def has_long_rows(func: tirx.PrimFunc, axis: int) -> bool:
    """Whether any operand of a concatenation has rows that are worth being parts."""
    *operands, result = [(p, tuple(int(extent) for extent in p.shape)) for p in func.params]
    lengths = [prod(shape[axis:]) * dtype_bytes(str(param.dtype)) for param, shape in operands]
    return prod(result[1][:axis]) == 1 or any(length >= SHORTEST_ROW for length in lengths)


def strides_of(
    buffers: Sequence[Buffer], number: int, shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The strides, in elements, of a part seen in some shape; None if it is compact."""
    part = buffers[number]
    if part.space != "part" or part.pitch == buffers[part.index].nbytes:
        return None
    item = dtype_bytes(part.dtype)
    length = part.nbytes * part.pitch // buffers[part.index].nbytes
    return row_strides(shape, length // item, part.pitch // item)


@dataclass(frozen=True)
class _Matrix:
    """Where the result of a concatenation lies: columns from ``start`` on of the rows of a buffer.

    ``start`` and ``pitch`` are in bytes.
    """

    whole: int
    count: int
    pitch: int
    start: int = 0


class _Placing:
    """Turns buffers into parts, one concatenation after the other, the last one first."""

    def __init__(self, buffers: list[Buffer], calls: Sequence[TensorCall], alignment: int) -> None:
        self.buffers = buffers
        self.alignment = alignment
        self.users: defaultdict[int, list[tuple[TensorCall, int]]] = defaultdict(list)
        for call in calls:
            for position, argument in enumerate(call.arguments):
                if isinstance(argument, int):
                    self.users[argument].append((call, position))

    def replacement(self, call: TensorCall) -> list[TensorCall]:
        """What is left to do for a concatenation: nothing, some copies, or itself."""
        count = prod(call.shape(len(call.operands))[: axis_of(call.func)])
        matrix = self._matrix(call.results[0], count)
        if matrix is None or not self._are_aligned(call, count):
            return [call]
        if self._lie_side_by_side(call, count):
            first = self.buffers[call.operands[0]]
            self._make_part(call.results[0], first.index, first.offset, first.pitch)
            return []
        copies: list[TensorCall] = []
        start, moved = matrix.start, 0
        for position, operand in enumerate(call.operands):
            length = self._row_bytes(call, position, count)
            if length and self._can_move(operand, call, length, matrix):
                self._make_part(operand, matrix.whole, start, matrix.pitch)
                moved += 1
            elif length:
                copies.append(self._copy(call, position, matrix, start))
            start += length
        if not moved:
            del self.buffers[len(self.buffers) - len(copies) :]
            return [call]
        return copies

    def _are_aligned(self, call: TensorCall, count: int) -> bool:
        """Whether all operands begin where kernels load and store vectors."""
        lengths = (self._row_bytes(call, k, count) for k in range(len(call.operands) - 1))
        return all(start % self.alignment == 0 for start in accumulate(lengths))

    def _matrix(self, result: int, count: int) -> _Matrix | None:
        buffer = self.buffers[result]
        if not buffer.nbytes:
            return None
        if buffer.space != "part":
            return _Matrix(result, count, buffer.nbytes // count)
        rows = self.buffers[buffer.index].nbytes // buffer.pitch
        return _Matrix(buffer.index, count, buffer.pitch, buffer.offset) if rows == count else None

    def _lie_side_by_side(self, call: TensorCall, count: int) -> bool:
        """Whether the operands are parts of one buffer already, each next to the one before."""
        operands = [self.buffers[o] for o in call.operands if isinstance(o, int)]
        first = operands[0] if len(operands) == len(call.operands) else None
        if first is None or any(o.space != "part" or o.index != first.index for o in operands):
            return False
        if self.buffers[first.index].nbytes // first.pitch != count:
            return False
        start = first.offset
        for position, operand in enumerate(operands):
            if operand.offset != start:
                return False
            start += self._row_bytes(call, position, count)
        result = call.results[0]
        return self.buffers[result].space == "arena" and self._fits(
            result, call, start - first.offset, first.pitch
        )

    def _can_move(
        self, operand: int | GenericConst, call: TensorCall, length: int, matrix: _Matrix
    ) -> bool:
        """Whether an operand is a result that nothing else keeps from lying in the matrix."""
        if not isinstance(operand, int) or self.buffers[operand].space != "arena":
            return False
        # A slice of the first rows is a view: the call reads less than there is.
        if self.buffers[operand].nbytes != length * matrix.count:
            return False
        if matrix.count > 1 and length < SHORTEST_ROW:
            return False
        return matrix.count == 1 or self._fits(operand, call, length, matrix.pitch)

    def _fits(self, number: int, call: TensorCall, length: int, pitch: int) -> bool:
        """Whether all users of a buffer but a concatenation can do with rows that lie apart."""
        item = dtype_bytes(self.buffers[number].dtype)
        return all(
            row_strides(user.shape(position), length // item, pitch // item) is not None
            and not (user.func.attrs and "tirx.is_scheduled" in user.func.attrs)
            for user, position in self.users[number]
            if user is not call
        )

    def _make_part(self, number: int, whole: int, offset: int, pitch: int) -> None:
        self.buffers[number] = replace(
            self.buffers[number], space="part", index=whole, offset=offset, pitch=pitch
        )

    def _row_bytes(self, call: TensorCall, position: int, count: int) -> int:
        """Bytes of a row of an operand of a concatenation."""
        item = dtype_bytes(str(call.func.params[position].dtype))
        return prod(call.shape(position)) * item // count

    def _copy(self, call: TensorCall, position: int, matrix: _Matrix, offset: int) -> TensorCall:
        """An operator that copies an operand into its part, a buffer of its own."""
        shape, dtype = call.shape(position), str(call.func.params[position].dtype)
        name = f"{self.buffers[call.results[0]].name}.{position}"
        part = Buffer(name, shape, dtype, "part", matrix.whole, offset, matrix.pitch)
        self.buffers.append(part)
        operands = (call.operands[position],)
        results = (len(self.buffers) - 1,)
        return TensorCall(f"{call.name}_copy", copy_func(shape, dtype), operands, results)


@cache
def copy_func(shape: tuple[int, ...], dtype: str) -> tirx.PrimFunc:
    """A PrimFunc that copies a tensor."""
    source = te.placeholder(shape, dtype, "source")
    func = te.create_prim_func([source, te.compute(shape, lambda *index: source(*index), "copy")])
    return func.without_attr("global_symbol").with_attr("tirx.noalias", True)
