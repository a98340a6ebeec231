"""The least time that the operators of a plan take all cores, one operator after the other.

The sum over all operators of what is larger: operations over the rate of multiply-adds, or bytes
over the bandwidth of where they lie. An operand lies in the nearest cache that holds all that the
plan touched since it touched the operand: activations are near, and weights as far away as the
whole network is large, as they were read a run ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from statistics import median
from typing import Any

from tvm_rammer.kernel.work import count_work
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.ceilings import Ceilings, memory_level
from tvm_rammer.rprogram import RProgram

#: A memory's name, the bytes of it that are touched, and whether they are read or written.
_Access = tuple[tuple[Any, ...], float, str]


@dataclass(frozen=True)
class Demand:
    """What an operator takes: operations, and bytes of each memory by the name of its ceiling."""

    flops: float
    nbytes: Mapping[str, float]

    def seconds(self, ceilings: Ceilings) -> float:
        """The least time."""
        return max(self.flops / ceilings.flops, sum(self._reading(ceilings).values()))

    def limit(self, ceilings: Ceilings) -> str:
        """What sets the least time: ``"compute"``, or the memory that most of the reading takes."""
        reading = self._reading(ceilings)
        if self.flops / ceilings.flops >= sum(reading.values()):
            return "compute"
        return max(reading, key=reading.__getitem__)

    def _reading(self, ceilings: Ceilings) -> dict[str, float]:
        return {level: count / getattr(ceilings, level) for level, count in self.nbytes.items()}


def demands(
    programs: Iterable[RProgram], bodies: Mapping[str, Any], vdevice: VDevice
) -> list[Demand]:
    """What each operator of some plans takes, run after run.

    Parameters
    ----------
    programs : iterable of RProgram
        In the order in which they run.
    bodies : mapping of str to PrimFunc
        The rTask bodies by the names of their kernels.
    vdevice : VDevice
        States the caches: the second level of every core, and one last level.
    """
    programs = list(programs)
    accesses = [
        access
        for region, program in enumerate(programs)
        for access in _accesses(program, region, bodies)
    ]
    # Of what all touched, each core's cache has its part.
    near = replace(vdevice, l2_bytes=vdevice.l2_bytes * vdevice.num_veus)
    ages = _Ages(sum(program.constant_bytes + program.arena_bytes for program in programs))
    for _ in range(2):  # the second run meets what the first one left
        found = [Demand(flops, _by_level(touched, ages, near)) for flops, touched in accesses]
    return found


def least_seconds(found: Iterable[Demand], ceilings: Ceilings) -> float:
    """The sum of the operators' least times."""
    return sum(demand.seconds(ceilings) for demand in found)


def typical(found: Sequence[Ceilings]) -> Ceilings:
    """The median of every ceiling."""
    rows = [asdict(one) for one in found]
    return Ceilings(**{name: median(row[name] for row in rows) for name in rows[0]})


def _memory(program: RProgram, number: int, region: int) -> tuple[Any, ...]:
    """What names the memory of a buffer: constants that share bytes are the same."""
    buffer = program.buffers[number]
    if buffer.space == "part":
        return _memory(program, buffer.index, region)
    return (region, buffer.space, buffer.offset if buffer.space == "constant" else number)


def _accesses(
    program: RProgram, region: int, bodies: Mapping[str, Any]
) -> Iterator[tuple[float, list[_Access]]]:
    """For each operator its operations, and what it touches."""
    for index, op in enumerate(program.operators):
        kernel = program.kernel_of(index)
        sizes = [program.buffers[buffer].nbytes for buffer in op.arguments]
        flops, touched = count_work(bodies[kernel.name], kernel.num_tiles, sizes)
        memories = [_memory(program, buffer, region) for buffer in op.arguments]
        yield flops, list(zip(memories, touched, kernel.modes, strict=True))


class _Ages:
    """How many bytes were touched since each memory was: never more than there are, as the places
    of intermediate results are used again and again.
    """

    def __init__(self, footprint: int) -> None:
        self.footprint = footprint
        self.clock = 0.0
        self._last: dict[Any, float] = {}

    def after(self, nbytes: float, memory: Any) -> float:
        """What was touched since a memory was, once so many bytes more are."""
        return min(self.footprint, nbytes + self.clock - self._last.get(memory, 0.0))

    def touch(self, memories: Iterable[Any], nbytes: float) -> None:
        self.clock += nbytes
        self._last.update(dict.fromkeys(memories, self.clock))


def _by_level(touched: list[_Access], ages: _Ages, vdevice: VDevice) -> dict[str, float]:
    levels: dict[str, float] = {}
    whole = sum(nbytes for _, nbytes, _ in touched)
    for memory, nbytes, mode in touched:
        # What is written is new: nothing has to be brought.
        age = ceil(ages.after(whole, memory))
        level = "l2" if mode == "write" else memory_level(age, vdevice)
        levels[level] = levels.get(level, 0.0) + nbytes
    ages.touch([memory for memory, _, _ in touched], whole)
    return levels
