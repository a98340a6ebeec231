"""Partitions that agree: which vEU runs which tiles, so that it reads what it wrote.

The seconds that an operator takes, cut in some way, depend on how those are cut whose results it
reads. One operator after the other is cut in the way that is best for it and its readers together,
all others as they are, to and fro until nothing gets better (iterated conditional modes, Besag
1986): along a chain and where branches meet alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tvm_rammer.machine.topology import Distance
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.rows import writers_of
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.placement import split
from tvm_rammer.schedule.transfers import common_bytes

#: The range of tiles that each vEU runs.
Ranges = Mapping[int, tuple[int, int]]

#: Bytes by how far those are who wrote them.
Moved = dict[Distance, float]

#: So often all operators are looked at.
_SWEEPS = 4
#: Sums of floats: this much shorter is not shorter.
_ROUNDING = 1 - 1e-9


@dataclass(frozen=True)
class Slot:
    """Where an operator may run.

    Attributes
    ----------
    start : float
        When the first vEU starts it now.
    ranges : Ranges
        How it is cut now.
    late : mapping of int to float
        Of the vEUs that run it now, how much later than the first each can start (seconds).
    veus : tuple of int
        Those, and all that idle as long as it runs; ascending.
    """

    start: float
    ranges: Ranges
    late: Mapping[int, float]
    veus: tuple[int, ...]


def agree(program: RProgram, slots: Mapping[int, Slot], costs: CostModel) -> dict[int, Ranges]:
    """Cut operators anew.

    Parameters
    ----------
    program : RProgram
    slots : mapping of int to Slot
        Of the operators that may be cut in another way, in the order in which they run.
    costs : CostModel

    Returns
    -------
    dict of int to Ranges
        The operators that are cut in another way.
    """
    search = _Agreement(program, slots, costs)
    search.run()
    return {n: cut for n, cut in search.cuts.items() if n in slots and cut != slots[n].ranges}


class _Agreement:
    """How operators are cut at the moment, and what that costs.

    Attributes
    ----------
    cuts : dict of int to Ranges
        The cut of each operator that has a slot.
    codes : dict of int to int
        A number for each of those; equal cuts of an operator have the same.
    producers : list of list of (int, int, int)
        For each operator: a pointer that reads, which operator with a slot writes that, and by
        which pointer.
    readers : dict of int to list of int
        The operators with slots that read what one writes.
    links : dict of (int, int) to list of (int, int)
        Of a reader and one whose results it reads: the pointer that reads, and the one that writes.
    moved : dict of int to dict of int to Moved
        What each vEU of an operator reads of what others wrote.
    """

    def __init__(self, program: RProgram, slots: Mapping[int, Slot], costs: CostModel) -> None:
        self.program = program
        self.slots = slots
        self.costs = costs
        self.pairs = costs.pairs()
        self.cuts: dict[int, Ranges] = {}
        self.codes: dict[int, int] = {}
        self.known_codes: dict[tuple[int, tuple[object, ...]], int] = {}
        for number, slot in slots.items():
            self._cut(number, slot.ranges)
        self.producers = [
            [each for each in mine if each[1] in slots] for mine in _producers(program)
        ]
        self.links: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.readers: dict[int, list[int]] = defaultdict(list)
        for number in slots:
            for pointer, before, wrote in self.producers[number]:
                self.links[number, before].append((pointer, wrote))
            for before in {p for _, p, _ in self.producers[number]}:
                self.readers[before].append(number)
        self.arriving: dict[object, Moved] = {}
        self.masks: dict[tuple[int, int, int, int], int] = {}
        self.moved = {number: self._all_moved(number) for number in slots}

    def run(self) -> None:
        # Who has one vEU to run on has nothing to choose.
        order = [number for number, slot in self.slots.items() if len(slot.veus) > 1]
        stale = set(order)
        for sweep in range(_SWEEPS):
            for number in order if sweep % 2 == 0 else reversed(order):
                if number in stale:
                    stale.remove(number)
                    if self._improve(number):
                        stale |= self._around(number) & set(order) - {number}
            if not stale:
                break

    def _around(self, number: int) -> set[int]:
        """Whose best cut may be another one when this one's is."""
        readers = self.readers[number]
        found = {
            producer for reader in (number, *readers) for _, producer, _ in self.producers[reader]
        }
        return found.union(readers)

    def _cut(self, number: int, cut: Ranges) -> None:
        key = number, tuple(cut.items())
        self.cuts[number] = cut
        self.codes[number] = self.known_codes.setdefault(key, len(self.known_codes))

    def _improve(self, number: int) -> bool:
        """Cut one operator in the best way, all others as they are."""
        readers = self.readers[number]
        others = {reader: self._moved_but_for(reader, number) for reader in readers}

        def total(own: Mapping[int, Moved]) -> float:
            return self._seconds(number, own) + sum(
                self._seconds(reader, self._with(reader, number, others[reader]))
                for reader in readers
            )

        before = self.cuts[number]
        best, least = before, total(self.moved[number])
        for cut in self._options(number):
            self._cut(number, cut)
            seconds = total(self._all_moved(number))
            if seconds < least * _ROUNDING:
                best, least = cut, seconds
        self._cut(number, best)
        if best is before:
            return False
        self.moved[number] = self._all_moved(number)
        for reader in readers:
            self.moved[reader] = self._with(reader, number, others[reader])
        return True

    def _options(self, number: int) -> Iterator[Ranges]:
        slot, tiles = self.slots[number], self.program.kernel_of(number).num_tiles
        seen: list[Ranges] = [self.cuts[number]]
        for cut in self._candidates(number, slot, tiles):
            if cut not in seen:
                seen.append(cut)
                yield cut

    def _candidates(self, number: int, slot: Slot, tiles: int) -> Iterator[Ranges]:
        yield slot.ranges
        yield spread(tiles, slot.veus)
        near = [p for _, p, _ in self.producers[number]]
        for other in dict.fromkeys([*near, *self.readers[number]]):
            theirs = self.cuts[other]
            yield from self._after(theirs, self.program.kernel_of(other).num_tiles, tiles, slot)
            allowed = tuple(v for v in slot.veus if v in theirs)
            if allowed:
                yield spread(tiles, allowed)

    def _after(self, theirs: Ranges, count: int, tiles: int, slot: Slot) -> Iterator[Ranges]:
        """The same part for each vEU as of another operator."""
        if not set(theirs) <= set(slot.veus) or not count:
            return
        order = sorted(theirs, key=lambda veu: theirs[veu])
        cuts = [0, *(round(theirs[veu][1] * tiles / count) for veu in order)]
        cuts[-1] = tiles
        yield {v: (a, b) for v, (a, b) in zip(order, pairwise(cuts), strict=True) if a < b}

    def _seconds(self, number: int, moved: Mapping[int, Moved]) -> float:
        """From the start of an operator to its end, as it is cut and so much is moved for it."""
        time, late = self.program.kernel_of(number).tile_time, self.slots[number].late
        return max(
            late.get(veu, 0.0) + (stop - start) * time + self._waiting(moved[veu])
            for veu, (start, stop) in self.cuts[number].items()
        )

    def _waiting(self, moved: Moved) -> float:
        """Seconds until that has arrived."""
        pairs = [(self.pairs[distance], nbytes) for distance, nbytes in moved.items() if nbytes]
        first = max((pair.transfer for pair, _ in pairs), default=0.0)
        return first + sum(nbytes * pair.transfer_byte for pair, nbytes in pairs)

    def _all_moved(self, number: int) -> dict[int, Moved]:
        """What each vEU of an operator reads of what others wrote, as all are cut."""
        found = {}
        for veu in self.cuts[number]:
            moved: Moved = {}
            for pointer, producer, wrote in self.producers[number]:
                _add(moved, self._moved(number, veu, pointer, producer, wrote))
            found[veu] = moved
        return found

    def _moved_but_for(self, reader: int, producer: int) -> dict[int, Moved]:
        """The same without what one of the others wrote."""
        return self._changed(reader, producer, self.moved[reader], -1)

    def _with(self, reader: int, producer: int, moved: Mapping[int, Moved]) -> dict[int, Moved]:
        """The same with what one more wrote."""
        return self._changed(reader, producer, moved, 1)

    def _changed(
        self, reader: int, producer: int, moved: Mapping[int, Moved], sign: int
    ) -> dict[int, Moved]:
        """With or without what another one wrote: numbers of bytes are sums without rounding."""
        found = {}
        for veu, known in moved.items():
            found[veu] = dict(known)
            for pointer, wrote in self.links[reader, producer]:
                _add(found[veu], self._moved(reader, veu, pointer, producer, wrote), sign)
        return found

    def _moved(self, number: int, veu: int, pointer: int, producer: int, wrote: int) -> Moved:
        """Of what a vEU reads by a pointer, what others wrote by another one."""
        here = number, veu, *self.cuts[number][veu]
        key = *here, pointer, wrote, self.codes[producer]
        if key not in self.arriving:
            self.arriving[key] = self._arriving(*here, pointer, producer, wrote)
        return self.arriving[key]

    def _arriving(
        self, number: int, veu: int, start: int, stop: int, pointer: int, producer: int, wrote: int
    ) -> Moved:
        """Bytes of what a vEU reads that others wrote, by how far these are."""
        program = self.program
        read = program.operators[number].arguments[pointer]
        written = program.operators[producer].arguments[wrote]
        cells = self._touched(number, pointer, start, stop)
        held_by_others = self._held_by_others(producer, wrote, veu).items()
        return {
            distance: common_bytes(program.buffers, read, cells, written, held)
            for distance, held in held_by_others
        }

    def _held_by_others(self, producer: int, wrote: int, veu: int) -> dict[Distance, int]:
        """The cells of a result that other vEUs wrote, by how far these are."""
        cut, topology = self.cuts[producer], self.costs.topology
        own = self._touched(producer, wrote, *cut.get(veu, (0, 0)))
        if topology is None:
            tiles = self.program.kernel_of(producer).num_tiles
            return {"complex": self._touched(producer, wrote, 0, tiles) & ~own}
        found: dict[Distance, int] = defaultdict(int)
        for other, (start, stop) in cut.items():
            if other != veu:
                cells = self._touched(producer, wrote, start, stop) & ~own
                found[topology.distance(veu, other)] |= cells
        return found

    def _touched(self, number: int, pointer: int, start: int, stop: int) -> int:
        key = (number, pointer, start, stop)
        if key not in self.masks:
            self.masks[key] = self.program.kernel_of(number).touched(pointer, start, stop)
        return self.masks[key]


def _producers(program: RProgram) -> list[list[tuple[int, int, int]]]:
    """For each operator: a pointer that reads, who writes (a part of) that, by which pointer.

    Another part of the same buffer is other data: of a concatenation of 128 steps the readers of a
    step have one writer, not 128.
    """
    accesses = [
        (number, pointer, buffer, mode)
        for number, operator in enumerate(program.operators)
        for pointer, (buffer, mode) in enumerate(
            zip(operator.arguments, program.kernel_of(number).modes, strict=True)
        )
    ]
    written = {buffer: k for k, (_, _, buffer, mode) in enumerate(accesses) if mode == "write"}
    writers = writers_of(program.buffers, written)
    found: list[list[tuple[int, int, int]]] = [[] for _ in program.operators]
    for number, pointer, buffer, mode in accesses:
        if mode == "read":
            found[number] += [(pointer, *accesses[writer][:2]) for writer in writers[buffer]]
    return found


def _add(moved: Moved, more: Moved, sign: int = 1) -> None:
    for distance, nbytes in more.items():
        moved[distance] = moved.get(distance, 0.0) + sign * nbytes


def spread(tiles: int, veus: Sequence[int]) -> Ranges:
    """Tiles spread evenly over some vEUs; where tiles are few, each where its place is."""
    places = veus
    if tiles < len(veus):
        places = [veus[(2 * tile + 1) * len(veus) // (2 * tiles)] for tile in range(tiles)]
    return dict(zip(places, split(tiles, len(places)), strict=True))
