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
        self.readers: dict[int, list[int]] = defaultdict(list)
        for number in slots:
            for before in {p for _, p, _ in self.producers[number]}:
                self.readers[before].append(number)
        self.known: dict[object, float] = {}
        self.arriving: dict[object, dict[Distance, float]] = {}
        self.masks: dict[tuple[int, int, int, int], int] = {}

    def run(self) -> None:
        # Who has one vEU to run on has nothing to choose.
        order = [number for number, slot in self.slots.items() if len(slot.veus) > 1]
        for sweep in range(_SWEEPS):
            changed = [self._improve(n) for n in (order if sweep % 2 == 0 else reversed(order))]
            if not any(changed):
                break

    def _cut(self, number: int, cut: Ranges) -> None:
        key = number, tuple(cut.items())
        self.cuts[number] = cut
        self.codes[number] = self.known_codes.setdefault(key, len(self.known_codes))

    def _improve(self, number: int) -> bool:
        """Cut one operator in the best way, all others as they are."""
        around = [number, *self.readers[number]]
        before = self.cuts[number]
        best, least = before, sum(map(self._seconds, around))
        for cut in self._options(number):
            self._cut(number, cut)
            seconds = sum(map(self._seconds, around))
            if seconds < least * _ROUNDING:
                best, least = cut, seconds
        self._cut(number, best)
        return best is not before

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

    def _seconds(self, number: int) -> float:
        """From the start of an operator to its end, as it and what it reads are cut."""
        cut, codes = self.cuts[number], self.codes
        key = codes[number], *[codes[p] for _, p, _ in self.producers[number]]
        if key not in self.known:
            time, late = self.program.kernel_of(number).tile_time, self.slots[number].late
            self.known[key] = max(
                late.get(veu, 0.0) + (stop - start) * time + self._waiting(number, veu, start, stop)
                for veu, (start, stop) in cut.items()
            )
        return self.known[key]

    def _waiting(self, number: int, veu: int, start: int, stop: int) -> float:
        """Seconds until what a vEU reads has arrived of what others wrote."""
        moved: dict[Distance, float] = defaultdict(float)
        here = number, veu, start, stop
        for pointer, producer, wrote in self.producers[number]:
            key = *here, pointer, wrote, self.codes[producer]
            if key not in self.arriving:
                self.arriving[key] = self._arriving(*here, pointer, producer, wrote)
            for distance, nbytes in self.arriving[key].items():
                moved[distance] += nbytes
        pairs = [(self.pairs[distance], nbytes) for distance, nbytes in moved.items() if nbytes]
        first = max((pair.transfer for pair, _ in pairs), default=0.0)
        return first + sum(nbytes * pair.transfer_byte for pair, nbytes in pairs)

    def _arriving(
        self, number: int, veu: int, start: int, stop: int, pointer: int, producer: int, wrote: int
    ) -> dict[Distance, float]:
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


def spread(tiles: int, veus: Sequence[int]) -> Ranges:
    """Tiles spread evenly over some vEUs; where tiles are few, each where its place is."""
    places = veus
    if tiles < len(veus):
        places = [veus[(2 * tile + 1) * len(veus) // (2 * tiles)] for tile in range(tiles)]
    return dict(zip(places, split(tiles, len(places)), strict=True))
