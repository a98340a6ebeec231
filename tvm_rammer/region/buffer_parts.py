"""Buffers that come to lie in another one, so that nobody has to copy them.

A buffer may be the same columns of every row of another, its *whole* (see
:class:`~tvm_rammer.rprogram.Buffer`): what a concatenation joins, what a slice takes out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_rammer.kernel.blocks import is_scheduled
from tvm_rammer.region.region_calls import RegionCalls, TensorCall
from tvm_rammer.rprogram import Buffer, dtype_bytes
from tvm_rammer.rprogram.rows import row_strides

#: Fewest bytes of a row of a part: the cache lines of shorter ones would belong to several vEUs.
SHORTEST_ROW = 64


@dataclass(frozen=True)
class RowColumns:
    """Columns of the rows of a buffer that is no part: ``length`` of each row's ``pitch`` bytes.

    Attributes
    ----------
    whole : int
        The buffer.
    count : int
        Its rows.
    pitch, start, length : int
        In bytes.
    """

    whole: int
    count: int
    pitch: int
    start: int
    length: int

    def part(self, start: int, length: int) -> RowColumns:
        """Some of these columns; ``start`` is counted from the first of them."""
        return replace(self, start=self.start + start, length=length)


class Parts:
    """The buffers of a region, some of which become parts of others.

    Parameters
    ----------
    region : RegionCalls
    alignment : int
        Bytes; kernels load and store vectors at multiples of them.
    """

    def __init__(self, region: RegionCalls, alignment: int) -> None:
        self.buffers = list(region.buffers)
        self.alignment = alignment
        self._parts: defaultdict[int, list[int]] = defaultdict(list)
        self._users: defaultdict[int, list[tuple[TensorCall, int]]] = defaultdict(list)
        for call in region.calls:
            self.remember(call)

    def add_part(self, buffer: Buffer, place: RowColumns) -> int:
        """Another buffer, in some place; its number."""
        self.buffers.append(buffer)
        self._set(len(self.buffers) - 1, place)
        return len(self.buffers) - 1

    def remember(self, call: TensorCall) -> TensorCall:
        """A call that reads and writes buffers where they will lie."""
        for position, argument in enumerate(call.arguments):
            if isinstance(argument, int):
                self._users[argument].append((call, position))
        return call

    def forget(self, call: TensorCall) -> None:
        """A call that nobody makes any more keeps no buffer from lying elsewhere."""
        for argument in call.arguments:
            if isinstance(argument, int):
                users = self._users[argument]
                users[:] = [pair for pair in users if pair[0] is not call]

    def columns(self, number: int, count: int) -> RowColumns | None:
        """A buffer as a matrix of ``count`` rows, ``None`` if its bytes are no such rows."""
        buffer = self.buffers[number]
        if not buffer.nbytes or buffer.nbytes % count:
            return None
        length = buffer.nbytes // count
        if buffer.space != "part":
            pitches = {self.buffers[part].pitch for part in self._parts[number]}
            return RowColumns(number, count, length, 0, length) if pitches <= {length} else None
        rows = self.buffers[buffer.index].nbytes // buffer.pitch
        if rows != count:
            return None
        return RowColumns(buffer.index, count, buffer.pitch, buffer.offset, length)

    def may_lie(self, number: int, place: RowColumns, but: TensorCall | None = None) -> bool:
        """Whether a result, and what lies in it, can lie in a place as wide as itself.

        Parameters
        ----------
        number : int
            The buffer.
        place : RowColumns
        but : TensorCall, optional
            A call that will not be made.
        """
        buffer = self.buffers[number]
        # A slice of the first rows is a view: its readers see less than there is.
        if buffer.space != "arena" or buffer.nbytes != place.length * place.count:
            return False
        if place.start % self.alignment:
            return False
        if place.count == 1:
            return self.columns(number, 1) is not None
        return (
            place.length >= SHORTEST_ROW
            and self.columns(number, place.count) is not None
            and all(self._fits(each, place, but) for each in (number, *self._parts[number]))
        )

    def _fits(self, number: int, place: RowColumns, but: TensorCall | None) -> bool:
        """Whether all users of a buffer can do with rows that lie so far apart."""
        buffer = self.buffers[number]
        item = dtype_bytes(buffer.dtype)
        length = buffer.nbytes // place.count
        return all(
            row_strides(user.shape(position), length // item, place.pitch // item) is not None
            and not is_scheduled(user.func)
            for user, position in self._users[number]
            if user is not but
        )

    def move(self, number: int, place: RowColumns) -> None:
        """Let a buffer, and what lies in it, lie in some place of the same size."""
        for part in self._parts.pop(number, []):
            buffer = self.buffers[part]
            length = buffer.nbytes // place.count
            self._set(part, replace(place, start=place.start + buffer.offset, length=length))
        self._set(number, place)

    def _set(self, number: int, place: RowColumns) -> None:
        nbytes = self.buffers[place.whole].nbytes
        inside = place.start + place.length <= place.pitch and place.count * place.pitch == nbytes
        assert inside, f"{place} is not inside of {self.buffers[place.whole]}"
        self.buffers[number] = replace(
            self.buffers[number],
            space="part",
            index=place.whole,
            offset=place.start,
            pitch=place.pitch,
        )
        self._parts[place.whole].append(number)

    def covered(self, numbers: Sequence[int], count: int) -> RowColumns | None:
        """The place of buffers that lie side by side in one, each next to the one before."""
        found = [self.columns(number, count) for number in numbers]
        first = found[0] if found else None
        if first is None or any(self.buffers[number].space != "part" for number in numbers):
            return None
        stop = first.start
        for each in found:
            if each is None or each.whole != first.whole or each.start != stop:
                return None
            stop += each.length
        return first.part(0, stop - first.start)


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
