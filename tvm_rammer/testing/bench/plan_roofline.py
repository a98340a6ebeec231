"""The least time that the operators of a plan take all cores, one operator after the other.

The sum over all operators of what is larger: operations over the rate of multiply-adds, or bytes
over the bandwidth of where they lie. An operand lies in the nearest cache that holds all that the
plan touched since it touched the operand: activations are near, and weights as far away as the
whole network is large, as they were read a run ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm_rammer.kernel.work import count_work
from tvm_rammer.rprogram import RProgram
from tvm_rammer.vdevice import VDevice
from tvm_rammer.vdevice.ceilings import Ceilings


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
    steps = [step for number, program in enumerate(programs) for step in _steps(program, number)]
    accesses = [_accesses(step, bodies) for step in steps]
    ages = _Ages()
    for _ in range(2):  # the second run meets what the first one left
        found = [Demand(flops, _by_level(touched, ages, vdevice)) for flops, touched in accesses]
    return found


def least_seconds(found: Iterable[Demand], ceilings: Ceilings) -> float:
    """The sum of the operators' least times."""
    return sum(demand.seconds(ceilings) for demand in found)


@dataclass(frozen=True)
class _Step:
    """An operator: its kernel, and for each pointer what memory it is, its size, and the mode."""

    kernel: str
    num_tiles: int
    operands: tuple[tuple[tuple[Any, ...], int, str], ...]


def _steps(program: RProgram, number: int) -> Iterator[_Step]:
    for index, op in enumerate(program.operators):
        kernel = program.kernel_of(index)
        operands = tuple(
            (_memory(program, buffer, number), program.buffers[buffer].nbytes, mode)
            for buffer, mode in zip(op.arguments, kernel.modes, strict=True)
        )
        yield _Step(kernel.name, kernel.num_tiles, operands)


def _memory(program: RProgram, number: int, region: int) -> tuple[Any, ...]:
    """What names the memory of a buffer: constants that share bytes are the same."""
    buffer = program.buffers[number]
    if buffer.space == "part":
        return _memory(program, buffer.index, region)
    return (region, buffer.space, buffer.offset if buffer.space == "constant" else number)


def _accesses(
    step: _Step, bodies: Mapping[str, Any]
) -> tuple[float, list[tuple[tuple[Any, ...], float, str]]]:
    sizes = [size for _, size, _ in step.operands]
    flops, touched = count_work(bodies[step.kernel], step.num_tiles, sizes)
    return flops, [
        (memory, nbytes, mode)
        for (memory, _, mode), nbytes in zip(step.operands, touched, strict=True)
    ]


class _Ages:
    """How many bytes were touched since each memory was."""

    def __init__(self) -> None:
        self.clock = 0.0
        self._last: dict[Any, float] = {}

    def of(self, memory: Any) -> float:
        return self.clock - self._last.get(memory, 0.0)

    def touch(self, memories: Iterable[Any], nbytes: float) -> None:
        self.clock += nbytes
        self._last.update(dict.fromkeys(memories, self.clock))


def _by_level(
    touched: list[tuple[tuple[Any, ...], float, str]], ages: _Ages, vdevice: VDevice
) -> dict[str, float]:
    levels: dict[str, float] = {}
    whole = sum(nbytes for _, nbytes, _ in touched)
    for memory, nbytes, mode in touched:
        # What is written is new: nothing has to be brought.
        level = "l2" if mode == "write" else _level(whole + ages.of(memory), vdevice)
        levels[level] = levels.get(level, 0.0) + nbytes
    ages.touch([memory for memory, _, _ in touched], whole)
    return levels


def _level(nbytes: float, vdevice: VDevice) -> str:
    """Where operands lie that are as old as so many bytes: each core has touched its part."""
    if nbytes <= vdevice.l2_bytes * vdevice.num_veus:
        return "l2"
    return "l3" if nbytes <= vdevice.l3_bytes else "dram"
