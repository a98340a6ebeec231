"""What regions of a module have whatever their plan: operator graphs, constants, kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.ir import GlobalVar

from tvm_rammer.backend.protocol import Backend, KernelCompiler
from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.kernel.measured_costs import cost_key, load_costs, store_costs
from tvm_rammer.kernel.operands import operands_of
from tvm_rammer.progress import tell, tell_each
from tvm_rammer.region.forget_constants import forget_constants
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.region.marks import regions_of
from tvm_rammer.region.operator_graph import RegionGraph, region_graph, unwatched
from tvm_rammer.region.planned import signature_of
from tvm_rammer.rprogram import OperatorGraph


@dataclass
class RegionCompiler:
    """Operator graphs and compiled kernels of a module's regions, each made once.

    Planning the same regions again, for another policy or number of vEUs, compiles nothing.
    """

    target: tvm.target.Target
    kernels: KernelLibrary
    _graphs: dict[GlobalVar, RegionGraph] = field(default_factory=dict)
    _modules: dict[tuple[Any, ...], tvm.runtime.Module] = field(default_factory=dict)
    _compiler: KernelCompiler = field(init=False)

    def __post_init__(self) -> None:
        self._compiler = self.backend.compiler(self.target)

    @property
    def backend(self) -> Backend:
        """The back end that compiles."""
        return self.kernels.backend

    def graph(
        self, symbol: GlobalVar, mod: tvm.IRModule, watch: Callable[[bool], None] = unwatched
    ) -> RegionGraph:
        """The operator graph of a region function; ``watch`` as in :func:`region_graph`."""
        if symbol not in self._graphs:
            self._graphs[symbol] = region_graph(
                symbol.name_hint, mod[symbol], mod, self.kernels, watch
            )
        return self._graphs[symbol]

    def start(self, mod: tvm.IRModule) -> None:
        """Make the graphs of all regions of a module, and start to compile their kernels."""
        symbols = regions_of(mod)
        for symbol in symbols:

            def watch(complete: bool, last: bool = symbol == symbols[-1]) -> None:
                self._compiler.start(self.kernels.bodies, complete and last)

            self.graph(symbol, mod, watch)

    def take(self, mod: tvm.IRModule) -> None:
        """Start, and pack the constants of all regions, which the module itself forgets.

        New memory takes long, and what is packed makes room for what is not.
        """
        self.start(mod)
        for symbol in regions_of(mod):
            mod[symbol] = forget_constants(mod[symbol])
        for symbol in regions_of(mod):
            self._graphs[symbol].pool.array()

    def module(self, signatures: tuple[RegionSignature, ...]) -> tvm.runtime.Module:
        """The compiled kernels of regions with these signatures: all that there are by now."""
        bodies = self.kernels.bodies
        key = (len(bodies), *signatures)
        if key not in self._modules:
            tell(f"compiling {len(bodies)} kernels")
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

    def measure(self, symbols: list[GlobalVar], refresh: bool = False) -> None:
        """Replace the modelled costs of the regions' kernels by measured ones.

        Only where the target is this machine; a kernel that was measured here before, in whatever
        process, is not measured again unless ``refresh``.
        """
        vdevice, stopwatch = self.kernels.vdevice, self.backend.stopwatch
        if stopwatch is None or not vdevice.host:
            return
        regions = [self._graphs[symbol] for symbol in symbols]
        keys = {name: key for region in regions for name, key in self.keys(region.graph).items()}
        seconds = {} if refresh else load_costs(keys)
        signatures = tuple(signature_of(region.graph) for region in regions)
        for region, signature in zip(regions, signatures, strict=True):
            missing = [
                use for name, use in operands_of(region.graph).items() if name not in seconds
            ]
            if missing:
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
        for symbol in symbols:
            self._graphs[symbol] = self._graphs[symbol].with_costs(seconds)
