"""Which bytes a buffer has: one run of them or, as a part of another buffer, one in each row.

A concatenation along the channels of an image, for example, is a matrix of pixels by channels, and
each of its operands some columns of that matrix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
import numpy.typing as npt

from tvm_rammer.rprogram.program import Buffer, RProgram

Ints = npt.NDArray[np.int64]

_NONE: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Rows:
    """``count`` runs of ``length`` bytes, each ``pitch`` bytes behind the one before.

    Every input and every output is a space of its own.
    """

    space: str
    start: int
    length: int
    count: int = 1
    pitch: int = 0

    @property
    def stop(self) -> int:
        return self.start + (self.count - 1) * self.pitch + self.length

    def runs(self) -> tuple[Ints, Ints]:
        """Where each run starts and stops; nothing if they are empty."""
        starts = self.start + self.pitch * np.arange(self.count if self.length else 0)
        return starts, starts + self.length

    def overlaps(self, other: Rows) -> bool:
        """Whether they have a byte in common."""
        if self.space != other.space:
            return False
        if self.count == other.count == 1:
            return max(self.start, other.start) < min(self.stop, other.stop)
        starts, stops = self.runs()
        others, other_stops = other.runs()
        # The runs of the other that stop behind the start of each of these.
        following = np.searchsorted(other_stops, starts, side="right")
        there = following < len(others)
        return bool((others[following[there]] < stops[there]).any())

    def between(self, other: Rows) -> str:
        """The bytes from the first to the last that they may share, as error messages name them."""
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        return f"{self.space} bytes [{start}, {stop})"

    def __str__(self) -> str:
        return self.between(self)


def root_of(buffers: Sequence[Buffer], number: int) -> int:
    """The buffer that a part lies in; any other buffer itself."""
    return buffers[number].index if buffers[number].space == "part" else number


def rows_of(buffers: Sequence[Buffer], number: int) -> Rows:
    """The bytes of a buffer."""
    buffer = buffers[number]
    if buffer.space in ("input", "output"):
        return Rows(f"{buffer.space} {buffer.index}", 0, buffer.nbytes)
    if buffer.space != "part":
        return Rows(buffer.space, buffer.offset, buffer.nbytes)
    whole = rows_of(buffers, buffer.index)
    count = whole.length // buffer.pitch
    start = whole.start + buffer.offset
    return Rows(whole.space, start, buffer.nbytes // count, count, buffer.pitch)


def columns_of(buffers: Sequence[Buffer], number: int) -> tuple[int, int]:
    """Where the bytes of a part start and stop in each row of its whole.

    All parts of a buffer have the same pitch; a buffer that is no part has all columns there are.
    """
    buffer = buffers[number]
    if buffer.space != "part":
        return 0, buffer.nbytes
    length = buffer.nbytes * buffer.pitch // buffers[buffer.index].nbytes
    return buffer.offset, buffer.offset + length


def writers_of(buffers: Sequence[Buffer], producers: dict[int, int]) -> list[tuple[int, ...]]:
    """For each buffer the operators whose results it consists of, ascending.

    Parameters
    ----------
    buffers : sequence of Buffer
    producers : dict of int to int
        Which operator writes a buffer; a buffer whose parts are written may have none itself.
    """
    written: defaultdict[int, list[int]] = defaultdict(list)
    for number in producers:
        written[root_of(buffers, number)].append(number)
    found = []
    for number in range(len(buffers)):
        start, stop = columns_of(buffers, number)
        columns = {other: columns_of(buffers, other) for other in written[root_of(buffers, number)]}
        meeting = (
            producers[other]
            for other, (first, last) in columns.items()
            if other == number or max(first, start) < min(last, stop)
        )
        found.append(tuple(sorted(set(meeting))))
    return found


def predecessors_of(program: RProgram) -> list[set[int]]:
    """For each operator those whose results it reads."""
    numbers = range(len(program.operators))
    writers = writers_of(program.buffers, {b: n for n in numbers for b in program.writes(n)})
    return [{writer for b in program.reads(n) for writer in writers[b]} for n in numbers]


def in_place(program: RProgram) -> tuple[list[int], list[int]]:
    """The buffers that no operator writes, though operators write their bytes or callers do.

    Returns
    -------
    concatenations : list of int
        Buffers that consist of what several operators write.
    slices : list of int
        Parts of what an operator writes, or of an input.
    """
    buffers, numbers = program.buffers, range(len(program.operators))
    producers = {b: n for n in numbers for b in program.writes(n)}
    concatenations: list[int] = []
    slices: list[int] = []
    for number, writers in enumerate(writers_of(buffers, producers)):
        space = buffers[number].space
        if number in producers or space not in ("arena", "output", "part"):
            continue
        (slices if space == "part" and len(writers) < 2 else concatenations).append(number)
    return concatenations, slices


def row_strides(shape: Sequence[int], length: int, pitch: int) -> tuple[int, ...] | None:
    """Elements from one index of each axis to the next, if rows lie apart.

    Parameters
    ----------
    shape : sequence of int
        Of a tensor.
    length : int
        Elements of a row.
    pitch : int
        Elements from the start of a row to the start of the next.

    Returns
    -------
    tuple of int, optional
        ``None`` if no axis of the tensor begins where a row does.
    """
    inner = [prod(shape[axis:]) for axis in range(len(shape) + 1)]
    if length not in inner:
        return None
    return tuple(n if n < length else n // max(1, length) * pitch for n in inner[1:])


def pieces(rows: Sequence[Rows]) -> tuple[list[Ints], int]:
    """Cut memory into pieces, each the bytes that lie in the same buffers.

    Returns
    -------
    pieces : list of ndarray
        The pieces of each buffer, ascending.
    count : int
        All of their numbers are below.
    """
    if not rows:
        return [], 0
    ends: defaultdict[str, int] = defaultdict(int)
    for item in rows:
        ends[item.space] = max(ends[item.space], item.stop)
    bases = dict(zip(ends, accumulate(ends.values(), initial=0), strict=False))
    runs = [item.runs() for item in rows]
    shift = np.repeat([bases[item.space] for item in rows], [len(run[0]) for run in runs])
    starts, stops = (shift + np.concatenate([_NONE, *ends]) for ends in zip(*runs, strict=True))
    cuts = np.unique(np.concatenate([starts, stops]))
    firsts, lasts = np.searchsorted(cuts, starts), np.searchsorted(cuts, stops)
    # How many intervals between cuts come before each run, and before each buffer.
    before = np.concatenate([[0], np.cumsum(lasts - firsts)])
    bounds = before[np.cumsum([len(run[0]) for run in runs])]
    covered = np.split(_ranges(firsts, lasts), bounds[:-1])
    scattered = [k for k, item in enumerate(rows) if item.count > 1]
    if not scattered:
        return covered, len(cuts)
    name = _merge(covered, scattered, len(cuts))
    found = [
        np.unique(name[here]) if rows[k].count > 1 else _distinct(name[here])
        for k, here in enumerate(covered)
    ]
    return found, int(name.max(initial=-1)) + 1


def _distinct(names: Ints) -> Ints:
    """Sorted, each once; what is in order already stays as it is."""
    return names if (np.diff(names) > 0).all() else np.unique(names)


def _merge(covered: Sequence[Ints], scattered: Iterable[int], count: int) -> Ints:
    """A number for every interval between two cuts, the same one if the same buffers cover them.

    Only intervals in buffers of several rows are compared; in all others there is nothing to gain.
    """
    compared = np.zeros(count, bool)
    for number in scattered:
        compared[covered[number]] = True
    name = np.where(compared, -1, np.arange(count))
    fresh = count
    for here in covered:
        inside = here[compared[here]]
        if inside.size:
            # What had one name and lies inside is told from what had it and does not.
            before, which = np.unique(name[inside], return_inverse=True)
            name[inside] = fresh + which
            fresh += len(before)
    return np.unique(name, return_inverse=True)[1].astype(np.int64)


def _ranges(starts: Ints, stops: Ints) -> Ints:
    """``arange`` from each start to its stop, one after the other."""
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
