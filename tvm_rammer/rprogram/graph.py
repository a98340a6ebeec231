"""The operator graph: what a policy schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tvm_rammer.rprogram.program import Buffer, RKernel
from tvm_rammer.rprogram.rows import writers_of

#: What of a graph depends on its operators' pointers and modes alone.
_STRUCTURE = ("producers", "writers", "predecessors", "successors", "levels")


@dataclass(frozen=True)
class Operator:
    """An operator with every rKernel that may implement it.

    ``arguments`` are buffer indices in the order of the kernels' pointers; all candidates have the
    same pointers with the same modes. They range from efficient ones, whose tiles take few
    vEU-seconds together, to fast ones of more and smaller tiles, which end sooner when they own the
    device. The first stands for the operator where nothing is known of what runs beside it.
    """

    name: str
    candidates: tuple[RKernel, ...]
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class OperatorGraph:
    """The operators of one region in a topological order, and the buffers between them.

    Arena buffers have no place yet (their ``offset`` is 0 until memory is planned). Every buffer is
    written by at most one operator, or each of its parts is, or it is a part of what is written;
    operators come after the producers of what they read.
    """

    name: str
    buffers: tuple[Buffer, ...]
    operators: tuple[Operator, ...]
    constant_bytes: int = 0

    def with_costs(self, seconds: Mapping[str, float]) -> OperatorGraph:
        """The same graph, its kernels costing so many seconds per tile (by kernel name)."""
        costed = {
            kernel: replace(kernel, tile_time=seconds.get(kernel.name, kernel.tile_time))
            for kernel in {kernel for op in self.operators for kernel in op.candidates}
        }
        return self.with_candidates(
            tuple(costed[kernel] for kernel in op.candidates) for op in self.operators
        )

    def with_candidates(self, candidates: Iterable[tuple[RKernel, ...]]) -> OperatorGraph:
        """The same graph with other rKernels, of the same pointers and modes as those before.

        What is known of who reads whom stays known.
        """
        pairs = zip(self.operators, candidates, strict=True)
        operators = tuple(
            op if mine == op.candidates else replace(op, candidates=mine) for op, mine in pairs
        )
        found = replace(self, operators=operators)
        vars(found).update({name: vars(self)[name] for name in _STRUCTURE if name in vars(self)})
        return found

    @cached_property
    def producers(self) -> dict[int, int]:
        """Which operator writes a buffer.

        Inputs and constants have none, nor has a buffer of which several operators write parts, nor
        a part that is a slice of another's result.
        """
        return {
            buffer: number
            for number, op in enumerate(self.operators)
            for buffer, mode in zip(op.arguments, op.candidates[0].modes, strict=True)
            if mode == "write"
        }

    @cached_property
    def writers(self) -> list[tuple[int, ...]]:
        """For each buffer the operators whose results it consists of, ascending."""
        return writers_of(self.buffers, self.producers)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the operators whose results it reads, ascending."""
        return tuple(
            tuple(
                sorted(
                    {
                        producer
                        for buffer, mode in zip(op.arguments, op.candidates[0].modes, strict=True)
                        if mode == "read"
                        for producer in self.writers[buffer]
                    }
                )
            )
            for op in self.operators
        )

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the operators that read its results, ascending."""
        found: list[list[int]] = [[] for _ in self.operators]
        for number, before in enumerate(self.predecessors):
            for producer in before:
                found[producer].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Length of the longest path from a source to each operator (Kahn's levels, ASAP)."""
        depth: list[int] = []
        for before in self.predecessors:
            depth.append(1 + max((depth[p] for p in before), default=-1))
        return tuple(depth)
