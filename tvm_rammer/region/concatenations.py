"""Concatenations without copies: who makes an operand writes it where it will be read.

The result of a concatenation is a matrix, the axes before the concatenated one by all others, and
every operand is some of its columns. An operand that an operator of the region makes becomes a
*part* of the result (see :mod:`tvm_rammer.region.buffer_parts`); any other, say an input, is
copied into its part by an operator of its own. So the concatenation itself has nothing left to do.
Operands that are slices of one buffer, and together all of it, go there with it.

The last concatenation chooses first: where one is an operand of the next (DenseNet), the parts of
both lie in the last one's result, and one whose operands already lie side by side there is a part.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from math import prod

from tvm import te, tirx

from tvm_rammer.region.buffer_parts import SHORTEST_ROW, Parts, RowColumns
from tvm_rammer.region.region_calls import TensorCall
from tvm_rammer.rprogram import Buffer, dtype_bytes

#: Attribute of a PrimFunc that concatenates and does nothing else: the axis, from 0.
CONCATENATION = "tvm_rammer.concatenation"


def axis_of(func: tirx.PrimFunc) -> int | None:
    """Along which axis a PrimFunc concatenates, None if it is no concatenation."""
    marked = func.attrs and CONCATENATION in func.attrs
    return int(func.attrs[CONCATENATION]) if marked else None


def has_long_rows(func: tirx.PrimFunc, axis: int) -> bool:
    """Whether any operand of a concatenation has rows that are worth being parts."""
    *operands, result = [(p, tuple(int(extent) for extent in p.shape)) for p in func.params]
    lengths = [prod(shape[axis:]) * dtype_bytes(str(param.dtype)) for param, shape in operands]
    return prod(result[1][:axis]) == 1 or any(length >= SHORTEST_ROW for length in lengths)


class ConcatenationsInPlace:
    """Lets results lie where concatenations would copy them; asked for the last one first.

    Parameters
    ----------
    parts : Parts
        Of the region's buffers.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def replacement(self, call: TensorCall) -> list[TensorCall]:
        """What is left to do for a call: nothing, some copies, or itself."""
        axis = axis_of(call.func)
        if axis is None:
            return [call]
        count = prod(call.shape(len(call.operands))[:axis])
        lengths = [self._row_bytes(call, k, count) for k in range(len(call.operands))]
        starts = list(accumulate(lengths[:-1], initial=0))
        place = self.parts.columns(call.results[0], count)
        if place is None or any(start % self.parts.alignment for start in starts):
            return [call]
        operands = [operand for operand in call.operands if isinstance(operand, int)]
        if len(operands) == len(lengths):
            there = self.parts.covered(operands, count)
            if there is not None and self.parts.may_lie(call.results[0], there, call):
                self.parts.move(call.results[0], there)
                return []
        places = list(map(place.part, starts, lengths))
        return self._write_there(call, places)

    def _write_there(self, call: TensorCall, places: list[RowColumns]) -> list[TensorCall]:
        """The copies that are left when all operands that can lie in their places do."""
        missing = []
        for position, place in enumerate(places):
            self._move_all_of(call, position, places)
            if place.length and not self._lies_there(call, position, place):
                missing.append((position, place))
        if len(missing) == sum(place.length > 0 for place in places):
            return [call]
        return [self._copy(call, position, place) for position, place in missing]

    def _lies_there(self, call: TensorCall, position: int, place: RowColumns) -> bool:
        """Whether an operand lies in its place, or can from now on."""
        operand = call.operands[position]
        if not isinstance(operand, int):
            return False
        if self.parts.columns(operand, place.count) == place:
            return True
        if not self.parts.may_lie(operand, place, call):
            return False
        self.parts.move(operand, place)
        return True

    def _move_all_of(self, call: TensorCall, position: int, places: list[RowColumns]) -> None:
        """Move the buffer that the operands from here on are slices of, if they are all of it."""
        operands: list[int] = []
        for operand, place in zip(call.operands[position:], places[position:], strict=True):
            if not isinstance(operand, int):
                return
            operands.append(operand)
            there = self.parts.covered(operands, place.count)
            read = place.start + place.length - places[position].start
            # Of its buffer an operand may be the first rows alone.
            if there is None or there.start or there.length != read:
                return
            if there.length == there.pitch:
                whole = places[position].part(0, read)
                if self.parts.may_lie(there.whole, whole, call):
                    self.parts.move(there.whole, whole)
                return

    def _row_bytes(self, call: TensorCall, position: int, count: int) -> int:
        """Bytes of a row of an operand of a concatenation."""
        item = dtype_bytes(str(call.func.params[position].dtype))
        return prod(call.shape(position)) * item // count

    def _copy(self, call: TensorCall, position: int, place: RowColumns) -> TensorCall:
        """An operator that copies an operand into its part, a buffer of its own."""
        shape, dtype = call.shape(position), str(call.func.params[position].dtype)
        name = f"{self.parts.buffers[call.results[0]].name}.{position}"
        part = self.parts.add_part(Buffer(name, shape, dtype, "part"), place)
        operands = (call.operands[position],)
        return TensorCall(f"{call.name}_copy", copy_func(shape, dtype), operands, (part,))


@cache
def copy_func(shape: tuple[int, ...], dtype: str) -> tirx.PrimFunc:
    """A PrimFunc that copies a tensor."""
    source = te.placeholder(shape, dtype, "source")
    func = te.create_prim_func([source, te.compute(shape, lambda *index: source(*index), "copy")])
    return func.without_attr("global_symbol").with_attr("tirx.noalias", True)
