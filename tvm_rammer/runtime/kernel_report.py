"""What every rKernel of a model does, how fast it is, and how fast this machine lets it be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from tvm_rammer.kernel.constraints import Constraint, Vectors, constraint_of
from tvm_rammer.kernel.operands import Operand, Timing, copies_for
from tvm_rammer.kernel.roofline import Roofline, roofline
from tvm_rammer.kernel.work import Work, work_of
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.region.compiler import Graphs, RegionCompiler
from tvm_rammer.region.marks import read_left_out
from tvm_rammer.rprogram import RKernel, aligned

#: Kernels that are compiled together: fewer take longer in all, more show no progress.
_GROUP = 16

#: Rules that take what no template has a schedule for.
_FALLBACKS = ("generic", "untouched")

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class KernelFacts:
    """A distinct rKernel.

    Attributes
    ----------
    operator : str
        The first operator that uses it.
    count : int
        How many operators do.
    kernel : RKernel
        Its cost is the modelled one.
    work : Work
        Of all tiles.
    working_set : int
        Bytes that its measurement, or a network around it, moves through the caches.
    constraint : Constraint
        The vectors that its schedule promises.
    missed : str, optional
        What the generated code lacks of them.
    timing : Timing, optional
        Measured on one core; None where the target is another machine.
    roof : Roofline, optional
        None where the machine's ceilings are not known.
    """

    operator: str
    count: int
    kernel: RKernel
    work: Work
    working_set: int
    constraint: Constraint
    missed: str | None
    timing: Timing | None
    roof: Roofline | None

    @property
    def seconds(self) -> float:
        """Time on one core, measured or modelled."""
        return self.timing.seconds if self.timing else self.modelled_seconds

    @property
    def modelled_seconds(self) -> float:
        """Time that the compiler expects before it measures."""
        return self.kernel.tile_time * self.kernel.num_tiles

    @property
    def total_seconds(self) -> float:
        """Time of all operators that use it."""
        return self.count * self.seconds

    @property
    def fallback(self) -> bool:
        """Whether no template has a schedule for it."""
        return self.kernel.origin in _FALLBACKS

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain data, for JSON."""
        return {
            "name": self.kernel.name,
            "operator": self.operator,
            "count": self.count,
            "rule": self.kernel.origin,
            "tiling": self.kernel.tiling,
            "num_tiles": self.kernel.num_tiles,
            "measured": self.timing is not None,
            "seconds": self.seconds,
            "spread": self.timing.spread if self.timing else None,
            "modelled_seconds": self.modelled_seconds,
            "flops": self.work.flops,
            "bytes": self.work.nbytes,
            "working_set_bytes": self.working_set,
            "vector_axes": list(self.constraint.axes),
            "vector_bytes": _widths(self.constraint.vectors),
            "missed": self.missed,
            "roofline": (
                {**asdict(self.roof), "seconds": self.roof.seconds, "limit": self.roof.limit}
                if self.roof
                else None
            ),
        }


@dataclass(frozen=True)
class KernelReport:
    """All distinct rKernels of a model's regions, what takes longest first.

    ``left_out`` counts the operators that are in no region.
    """

    target: str
    vdevice: VDevice
    ceilings: Ceilings | None
    kernels: tuple[KernelFacts, ...]
    left_out: int

    @property
    def seconds(self) -> float:
        """All operators one after the other on one core."""
        return sum(facts.total_seconds for facts in self.kernels)

    @property
    def roofline_seconds(self) -> float | None:
        """What they would take at least; None where it is not known."""
        if self.ceilings is None:
            return None
        return sum(facts.count * facts.roof.seconds for facts in self.kernels if facts.roof)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        fallbacks = [facts for facts in self.kernels if facts.fallback]
        return {
            "target": self.target,
            "vdevice": self.vdevice.name,
            "ceilings": asdict(self.ceilings) if self.ceilings else None,
            "operators": sum(facts.count for facts in self.kernels),
            "seconds": self.seconds,
            "roofline_seconds": self.roofline_seconds,
            "fallback_operators": sum(facts.count for facts in fallbacks),
            "fallback_seconds": sum(facts.total_seconds for facts in fallbacks),
            "left_out": self.left_out,
            "kernels": [facts.to_dict() for facts in self.kernels],
        }


def kernel_report(
    mod: tvm.IRModule, compiler: RegionCompiler, progress: Progress | None = None
) -> KernelReport:
    """Compile every distinct rKernel by itself, look at its code, and time it on one core.

    Parameters
    ----------
    mod : IRModule
        Partitioned.
    compiler : RegionCompiler
        Of its regions.
    progress : callable, optional
        Called with the kernels that are done and all there are.

    Returns
    -------
    KernelReport
        Timed only where the target is this machine.
    """
    target, vdevice = compiler.target, compiler.kernels.vdevice
    uses = list(_uses(compiler.graphs(mod)).values())
    reached = compiler.backend.ceilings(target, vdevice)
    found: list[KernelFacts] = []
    for first in range(0, len(uses), _GROUP):
        if progress is not None:
            progress(first, len(uses))
        group, bodies = uses[first : first + _GROUP], compiler.kernels.bodies
        found += _facts(group, bodies, compiler, reached)
    found.sort(key=lambda facts: -facts.total_seconds)
    left_out = len(read_left_out(mod))
    return KernelReport(str(target), vdevice, reached, tuple(found), left_out)


@dataclass
class _Use:
    """A kernel, who uses it first, what that one gives it, how many bytes of it, and all users."""

    kernel: RKernel
    operator: str
    operands: tuple[Operand, ...]
    sizes: tuple[int, ...]
    count: int = 0


def _uses(graphs: Graphs) -> dict[str, _Use]:
    """The distinct kernels of all regions by name."""
    uses: dict[str, _Use] = {}
    for graph in (region.graph for region in graphs.values()):
        for op in graph.operators:
            kernel = op.candidates[0]
            operands = tuple(Operand.of(graph.buffers, k) for k in op.arguments)
            sizes = tuple(graph.buffers[k].nbytes for k in op.arguments)
            uses.setdefault(kernel.name, _Use(kernel, op.name, operands, sizes)).count += 1
    return uses


def _facts(
    uses: list[_Use],
    bodies: dict[str, Any],
    compiler: RegionCompiler,
    reached: Ceilings | None,
) -> Iterator[KernelFacts]:
    backend, target, vdevice = compiler.backend, compiler.target, compiler.kernels.vdevice
    measured = backend.examine([(u.kernel, u.operands) for u in uses], bodies, target, vdevice)
    for use, found in zip(uses, measured, strict=True):
        body = bodies[use.kernel.name]
        work = work_of(body, use.kernel.num_tiles, use.sizes)
        size = sum(aligned(operand.nbytes) for operand in use.operands)
        working_set = size * copies_for(size, vdevice.l2_bytes)
        constraint = constraint_of(body)
        yield KernelFacts(
            use.operator,
            use.count,
            use.kernel,
            work,
            working_set,
            constraint,
            constraint.missed(found.vectors),
            found.timing,
            roofline(work, working_set, reached, vdevice) if reached else None,
        )


def _widths(vectors: Vectors) -> dict[str, int]:
    return {"multiply_add": vectors.multiply_add, "load": vectors.load, "store": vectors.store}
