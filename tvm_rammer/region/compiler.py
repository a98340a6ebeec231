"""What regions of a module have whatever their plan: operator graphs, constants, kernels.

With a plan, that is a :class:`Region`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.ir import GlobalVar

from tvm_rammer.backend.protocol import Backend, EncodedPlan, KernelCompiler
from tvm_rammer.backend.signature import RegionSignature, TensorSpec
from tvm_rammer.kernel.measured_costs import cost_key, load_costs, store_costs
from tvm_rammer.kernel.operands import operands_of
from tvm_rammer.progress import tell, tell_each
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.region.marks import regions_of
from tvm_rammer.region.operator_graph import ConstantPool, RegionGraph, region_graph
from tvm_rammer.relax_util import has_several_entries
from tvm_rammer.rprogram import Buffer, OperatorGraph, RProgram
from tvm_rammer.schedule.decisions import Decision

#: By the region function.
Graphs = Mapping[GlobalVar, RegionGraph]


class RegionCompiler:
    """Remembers what a model's regions have whatever their plan; all of it is made once.

    Planning the same regions again, for another policy or number of vEUs, compiles nothing.
    """

    def __init__(self, target: tvm.target.Target, kernels: KernelLibrary) -> None:
        self.target = target
        self.kernels = kernels
        self._graphs: dict[GlobalVar, RegionGraph] = {}
        self._modules: dict[tuple[Any, ...], tvm.runtime.Module] = {}
        self._compiler: KernelCompiler = self.backend.compiler(target)

    @property
    def backend(self) -> Backend:
        """The back end that compiles."""
        return self.kernels.backend

    def graphs(self, mod: tvm.IRModule, start: bool = False) -> Graphs:
        """The operator graphs of a module's regions, with modelled costs of the kernels.

        Parameters
        ----------
        mod : IRModule
            Partitioned.
        start : bool
            Start to compile the kernels as soon as they are known.
        """
        symbols = regions_of(mod)
        # Functions of one model have the same weights, regions of one function hardly any.
        together = ConstantPool() if has_several_entries(mod) else None
        for symbol in symbols:

            def watch(complete: bool, last: bool = symbol == symbols[-1]) -> None:
                if start:
                    self._compiler.start(self.kernels.bodies, complete and last)

            if symbol not in self._graphs:
                with self.target:
                    self._graphs[symbol] = region_graph(
                        symbol.name_hint,
                        mod[symbol],
                        mod,
                        self.kernels,
                        together or ConstantPool(),
                        watch,
                    )
        return {symbol: self._graphs[symbol].with_all_constants() for symbol in symbols}

    def module(self, signatures: tuple[RegionSignature, ...]) -> tvm.runtime.Module:
        """The compiled kernels of regions with these signatures: all that there are by now."""
        bodies = self.kernels.bodies
        key = (len(bodies), *signatures)
        if key not in self._modules:
            tell(f"compiling {len(bodies)} kernels")
            with self.target:
                self._modules[key] = self._compiler.module(bodies, signatures)
        return self._modules[key]

    def compile_seconds(self) -> dict[str, float]:
        """What each body that is compiled took of a core, by its name."""
        return self._compiler.seconds(self.kernels.bodies)

    def keys(self, graph: OperatorGraph) -> dict[str, str]:
        """What identifies the code and the device of each kernel of a graph."""
        return {
            kernel.name: cost_key(
                self.kernels.bodies[kernel.name],
                kernel.num_tiles,
                self.target,
                self.kernels.vdevice,
            )
            for kernel in {kernel for op in graph.operators for kernel in op.candidates}
        }

    def measured(self, graphs: Graphs, refresh: bool = False) -> Graphs:
        """The same graphs, with measured costs of their kernels.

        Only where the target is this machine; a kernel that was measured here before, in whatever
        process, is not measured again unless ``refresh``.
        """
        vdevice, stopwatch = self.kernels.vdevice, self.backend.stopwatch
        if stopwatch is None or not vdevice.host:
            return graphs
        keys = {
            name: key for region in graphs.values() for name, key in self.keys(region.graph).items()
        }
        seconds = {} if refresh else load_costs(keys)
        signatures = tuple(signature_of(region.graph) for region in graphs.values())
        for region, signature in zip(graphs.values(), signatures, strict=True):
            missing = [
                use for name, use in operands_of(region.graph).items() if name not in seconds
            ]
            if missing:
                with self.target:
                    fresh = stopwatch.kernels(
                        self.module(signatures),
                        signature,
                        self.kernels.ids,
                        tell_each("measuring kernels", missing),
                        region.constants,
                        vdevice.l2_bytes,
                    )
                store_costs(keys, fresh)
                seconds |= fresh
        return {symbol: region.with_costs(seconds) for symbol, region in graphs.items()}


@dataclass(frozen=True)
class Region:
    """A region that is planned: everything that its call in Relax is made of.

    ``decision`` says why it has this plan, unless the user asked for the policy.
    """

    graph: RegionGraph
    program: RProgram
    signature: RegionSignature
    code: EncodedPlan
    decision: Decision | None = None


def signature_of(graph: OperatorGraph, num_waves: int = 0) -> RegionSignature:
    """What the kernel of a region is called with."""
    inputs, outputs = (_tensors(graph.buffers, space) for space in ("input", "output"))
    return RegionSignature(
        graph.name, tuple(map(_spec, inputs)), tuple(map(_spec, outputs)), num_waves
    )


def _tensors(buffers: tuple[Buffer, ...], space: str) -> list[Buffer]:
    return sorted((b for b in buffers if b.space == space), key=lambda b: b.index)


def _spec(buffer: Buffer) -> TensorSpec:
    return TensorSpec(buffer.shape, buffer.dtype)
