"""A compiler pass that replaces every region by one statically scheduled kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GlobalVar

from tvm_rammer.codegen.cpu import build_module, kernel_ids
from tvm_rammer.codegen.measure import measure_kernels, operands_of
from tvm_rammer.codegen.shard_compiler import ShardCompiler
from tvm_rammer.codegen.signature import RegionSignature, TensorSpec
from tvm_rammer.codegen.table import WAIT_LIMIT, arena_tensor_bytes, instruction_table
from tvm_rammer.kernel.costs import cost_key, load_costs, store_costs
from tvm_rammer.kernel.library import KernelLibrary
from tvm_rammer.progress import tell, tell_each
from tvm_rammer.rprogram import Buffer, OperatorGraph, RProgram
from tvm_rammer.schedule import AUTO, plan
from tvm_rammer.schedule.decisions import Decision
from tvm_rammer.tensors import constant
from tvm_rammer.transform.decide_plan import decide_plan
from tvm_rammer.transform.forget_constants import forget_constants
from tvm_rammer.transform.operator_graph import RegionGraph, region_graph, unwatched
from tvm_rammer.transform.partition_regions import is_region
from tvm_rammer.transform.relax_util import rewrite
from tvm_rammer.transform.remove_dead_code import remove_dead_code
from tvm_rammer.vdevice import VDevice


@dataclass(frozen=True)
class Region:
    """A region that is planned: everything that its call in Relax is made of.

    ``decision`` says why it has this plan, unless the user asked for the policy.
    """

    graph: RegionGraph
    program: RProgram
    signature: RegionSignature
    table: np.ndarray
    decision: Decision | None = None

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena tensor that a run needs."""
        return arena_tensor_bytes(self.program, self.signature.layout)


@dataclass
class RegionCompiler:
    """Operator graphs and compiled kernels of a module's regions, each made once.

    Planning the same regions again, for another policy or number of vEUs, compiles nothing.
    """

    target: tvm.target.Target
    kernels: KernelLibrary
    _graphs: dict[GlobalVar, RegionGraph] = field(default_factory=dict)
    _modules: dict[tuple[RegionSignature, ...], tvm.runtime.Module] = field(default_factory=dict)
    _shards: ShardCompiler = field(init=False)

    def __post_init__(self) -> None:
        self._shards = ShardCompiler(self.target)

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
                self._shards.start(self.kernels.bodies, complete and last)

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
        """The compiled kernels of regions with these signatures."""
        if signatures not in self._modules:
            tell(f"compiling {len(self.kernels.bodies)} kernels")
            self._modules[signatures] = build_module(self.kernels.bodies, signatures, self._shards)
        return self._modules[signatures]

    def compile_seconds(self) -> dict[str, float]:
        """What each body that is compiled took of a core, by its name."""
        return self._shards.seconds(self.kernels.bodies)

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
        vdevice = self.kernels.vdevice
        if not vdevice.host:
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
                fresh = measure_kernels(
                    self.module(signatures),
                    signature,
                    kernel_ids(self.kernels.bodies),
                    tell_each("measuring kernels", missing),
                    region.constants,
                    vdevice.l2_bytes,
                )
                store_costs(keys, fresh)
                seconds |= fresh
        for symbol in symbols:
            self._graphs[symbol] = self._graphs[symbol].with_costs(seconds)


@tvm.transform.module_pass(opt_level=0, name="CoSchedule")
class CoSchedule:
    """Plan, verify and compile all regions of a module.

    Parameters
    ----------
    compiler : RegionCompiler
        Makes and remembers what does not depend on the plan.
    vdevice : VDevice
        States the vEUs to plan for.
    policy : str
        A name in :data:`tvm_rammer.schedule.CHOICES`.
    by_wave : bool
        One kernel symbol and one launch per wavefront instead of one launch per region.
    wait_limit : float
        Seconds after which a wait gives a run up; 0 waits for ever.
    max_arena_bytes : int, optional
        Most memory for the intermediate results of a region.

    Attributes
    ----------
    regions : list of Region
        What was planned, after the pass has run.
    """

    def __init__(
        self,
        compiler: RegionCompiler,
        vdevice: VDevice,
        policy: str = AUTO,
        by_wave: bool = False,
        wait_limit: float = WAIT_LIMIT,
        max_arena_bytes: int | None = None,
    ) -> None:
        self.compiler = compiler
        self.vdevice = vdevice
        self.policy = policy
        self.by_wave = by_wave
        self.wait_limit = wait_limit
        self.max_arena_bytes = max_arena_bytes
        self.regions: list[Region] = []

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Replace the calls of all region functions; a module without any stays as it is."""
        symbols = regions_of(mod)
        if not symbols:
            return mod
        self.compiler.start(mod)
        self.compiler.measure(symbols)
        graphs = {symbol: self.compiler.graph(symbol, mod) for symbol in symbols}
        regions = {symbol: self._plan(graph, graphs) for symbol, graph in graphs.items()}
        self.regions = list(regions.values())
        kernels = self.compiler.module(tuple(region.signature for region in self.regions))
        return link(replace_regions(mod, regions), kernels)

    def _plan(self, region: RegionGraph, regions: Mapping[GlobalVar, RegionGraph]) -> Region:
        compiler = self.compiler
        ids = kernel_ids(compiler.kernels.bodies)
        if self.policy != AUTO:
            program = plan(
                region.graph, self.vdevice, self.policy, max_arena_bytes=self.max_arena_bytes
            )
            return self._region(region, program, self.by_wave, ids)
        signatures = tuple(signature_of(each.graph) for each in regions.values())
        chosen, decision = decide_plan(
            region,
            self.vdevice,
            signature_of(region.graph),
            lambda: compiler.module(signatures),
            ids,
            compiler.keys(region.graph),
            self.by_wave,
            self.max_arena_bytes,
        )
        planned = self._region(region, chosen.program, chosen.by_wave, ids)
        return replace(planned, decision=decision)

    def _region(
        self, graph: RegionGraph, program: RProgram, by_wave: bool, ids: Mapping[str, int]
    ) -> Region:
        """A region with its table."""
        signature = signature_of(graph.graph, program.num_waves if self.by_wave else 0)
        table = instruction_table(program, signature.layout, ids, by_wave, self.wait_limit)
        return Region(graph, replace(program, launches=signature.launches()), signature, table)


def regions_of(mod: tvm.IRModule) -> list[GlobalVar]:
    """The region functions of a module."""
    return [symbol for symbol, func in mod.functions_items() if is_region(func)]


def link(mod: tvm.IRModule, module: tvm.runtime.Module) -> tvm.IRModule:
    """Attach a compiled module, so that ``relax.build`` links it into the executable."""
    linked = list(mod.attrs.get("external_mods", [])) if mod.attrs else []
    return mod.with_attr("external_mods", [*linked, module])


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


def replace_regions(mod: tvm.IRModule, regions: dict[GlobalVar, Region]) -> tvm.IRModule:
    """Let every caller of a region function call the region's kernel instead."""
    result = rewrite(mod, _Replacer(mod, regions))
    for symbol in regions:
        del result[symbol]
    return remove_dead_code(result)


@relax.expr_functor.mutator
class _Replacer(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, regions: dict[GlobalVar, Region]) -> None:
        super().__init__(mod)
        self.regions = regions

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not isinstance(call.op, GlobalVar) or call.op not in self.regions:
            return call
        region = self.regions[call.op]
        arguments = [*call.args, constant(region.graph.constants), constant(region.table)]
        types = [relax.TensorType(spec.shape, spec.dtype) for spec in region.signature.outputs]
        types.append(relax.TensorType((region.arena_bytes,), "uint8"))
        results = self.builder_.emit(
            relax.call_dps_packed(region.signature.name, relax.Tuple(arguments), types)
        )
        wanted = [relax.TupleGetItem(results, k) for k in range(len(types) - 1)]
        return wanted[0] if len(wanted) == 1 else relax.Tuple(wanted)
