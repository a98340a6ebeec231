"""What the operators of a graph draw from caches and memory, whichever plan runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import Buffer, Mode, RProgram
from tvm_rammer.rprogram.rows import root_of
from tvm_rammer.schedule.costs import CostModel


class Weight(NamedTuple):
    """A constant that an operator reads, its size, and which of the operator's pointers it is."""

    buffer: int
    nbytes: int
    pointer: int


class Moved(NamedTuple):
    """A buffer that rTasks write: by which pointer an operator has it, and what it is a part of."""

    pointer: int
    buffer: int
    root: int


@dataclass(frozen=True, eq=False)
class Demands:
    """Tables of operators and buffers that all simulations of one graph's plans share.

    Attributes
    ----------
    buffers : tuple of Buffer
    arguments : tuple of tuple of int
        The buffers of each operator, by pointer.
    modes : tuple of tuple of {"read", "write"}
        What each operator does to them.
    missing : float
        The share of weights that comes from memory.
    """

    buffers: tuple[Buffer, ...]
    arguments: tuple[tuple[int, ...], ...]
    modes: tuple[tuple[Mode, ...], ...]
    missing: float

    @classmethod
    def of_program(cls, program: RProgram, costs: CostModel) -> Demands:
        """The demands of what a program runs."""
        modes = tuple(program.kernels[op.kernel].modes for op in program.operators)
        return cls(
            program.buffers,
            tuple(op.arguments for op in program.operators),
            modes,
            _missing(program.constant_bytes, program.num_veus, costs),
        )

    @classmethod
    def of_graph(cls, graph: OperatorGraph, num_veus: int, costs: CostModel) -> Demands:
        """The demands of all programs of a graph for so many vEUs."""
        return cls(
            graph.buffers,
            tuple(op.arguments for op in graph.operators),
            tuple(op.candidates[0].modes for op in graph.operators),
            _missing(graph.constant_bytes, num_veus, costs),
        )

    @cached_property
    def nbytes(self) -> list[int]:
        """Bytes that each operator reads and writes."""
        sizes = [buffer.nbytes for buffer in self.buffers]
        return [sum([sizes[b] for b in set(mine)]) for mine in self.arguments]

    @cached_property
    def memory_bytes(self) -> list[float]:
        """Bytes of weights that each operator is the first to read, as far as from memory."""
        constant = {n: b.nbytes for n, b in enumerate(self.buffers) if b.space == "constant"}
        found = []
        for mine in self.arguments:
            fresh = sum([constant.pop(b) for b in set(mine) if b in constant])
            found.append(self.missing * fresh)
        return found

    @cached_property
    def weights(self) -> list[Weight | None]:
        """The largest constant that each operator reads."""
        constant = {n: b.nbytes for n, b in enumerate(self.buffers) if b.space == "constant"}
        found: list[Weight | None] = []
        for mine in self.arguments:
            weights = [Weight(b, constant[b], k) for k, b in enumerate(mine) if b in constant]
            found.append(max(weights, key=lambda weight: weight.nbytes, default=None))
        return found

    @cached_property
    def read(self) -> list[list[Moved]]:
        """What each operator reads that others have written."""
        return self._moved("read")

    @cached_property
    def written(self) -> list[list[Moved]]:
        """What each operator writes."""
        return self._moved("write")

    def _moved(self, wanted: Mode) -> list[list[Moved]]:
        buffers: Sequence[Buffer] = self.buffers
        there = {
            number: root_of(buffers, number)
            for number, buffer in enumerate(buffers)
            if buffer.space not in ("constant", "input")
        }
        return [
            [
                Moved(pointer, buffer, there[buffer])
                for pointer, (buffer, mode) in enumerate(zip(mine, modes, strict=True))
                if mode == wanted and buffer in there
            ]
            for mine, modes in zip(self.arguments, self.modes, strict=True)
        ]


def _missing(constant_bytes: int, num_veus: int, costs: CostModel) -> float:
    return costs.missing_share(constant_bytes, costs.complexes(num_veus))
