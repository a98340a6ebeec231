"""What a kernel is measured with, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from tvm_rammer.rprogram import Buffer, OperatorGraph, RKernel, dtype_bytes
from tvm_rammer.rprogram.rows import root_of

#: Most copies of a kernel's operands that a measurement rotates through.
_MAX_COPIES = 16


@dataclass(frozen=True)
class Operand:
    """What a kernel's pointer points to in a measurement; for a part, as much as its whole.

    ``constant`` is where it is among the region's constants, if it is one.
    """

    shape: tuple[int, ...]
    dtype: str
    constant: int | None = None

    @property
    def nbytes(self) -> int:
        """Its size."""
        return prod(self.shape) * dtype_bytes(self.dtype)

    @staticmethod
    def of(buffers: Sequence[Buffer], number: int) -> Operand:
        """What a pointer to a buffer points to."""
        whole = buffers[root_of(buffers, number)]
        constant = whole.offset if whole.space == "constant" else None
        return Operand(whole.shape, whole.dtype, constant)


#: A kernel, and what its pointers point to where it is used first.
KernelUse = tuple[RKernel, tuple[Operand, ...]]


def operands_of(graph: OperatorGraph) -> dict[str, KernelUse]:
    """Every distinct kernel of a graph by name, with the operands of its first user."""
    found: dict[str, KernelUse] = {}
    for op in graph.operators:
        operands = tuple(Operand.of(graph.buffers, k) for k in op.arguments)
        for kernel in op.candidates:
            found.setdefault(kernel.name, (kernel, operands))
    return found


def copies_for(nbytes: int, cache_bytes: int) -> int:
    """Copies of so many bytes that a second-level cache does not hold."""
    return min(_MAX_COPIES, max(1, ceil(2 * cache_bytes / max(1, nbytes))))


@dataclass(frozen=True)
class Timing:
    """Seconds of the fastest run, and how much longer, relative to it, the median run took."""

    seconds: float
    spread: float
