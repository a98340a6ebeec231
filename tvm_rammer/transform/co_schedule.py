"""A compiler pass that replaces every region by one statically scheduled kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar

from tvm_rammer.backend.protocol import WAIT_LIMIT
from tvm_rammer.machine import VDevice
from tvm_rammer.region.compiler import RegionCompiler
from tvm_rammer.region.decide_plan import decide_plan
from tvm_rammer.region.marks import regions_of
from tvm_rammer.region.operator_graph import RegionGraph
from tvm_rammer.region.planned import Region, signature_of
from tvm_rammer.relax_util import rewrite
from tvm_rammer.rprogram import RProgram
from tvm_rammer.schedule import AUTO, plan
from tvm_rammer.tensors import constant
from tvm_rammer.transform.remove_dead_code import remove_dead_code


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
        One of :func:`tvm_rammer.schedule.choices`.
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
        ids = compiler.kernels.ids
        if self.policy != AUTO:
            costs = compiler.backend.costs(self.vdevice)
            program = plan(region.graph, self.vdevice, self.policy, costs, self.max_arena_bytes)
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
        """A region with its code."""
        signature = signature_of(graph.graph, program.num_waves if self.by_wave else 0)
        code = self.compiler.backend.encode(program, signature, ids, by_wave, self.wait_limit)
        return Region(graph, replace(program, launches=signature.launches()), signature, code)


def link(mod: tvm.IRModule, module: tvm.runtime.Module) -> tvm.IRModule:
    """Attach a compiled module, so that ``relax.build`` links it into the executable."""
    linked = list(mod.attrs.get("external_mods", [])) if mod.attrs else []
    return mod.with_attr("external_mods", [*linked, module])


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
        arguments = [*call.args, constant(region.graph.constants), constant(region.code.table)]
        types = [relax.TensorType(spec.shape, spec.dtype) for spec in region.signature.outputs]
        types.append(relax.TensorType((region.code.arena_bytes,), "uint8"))
        results = self.builder_.emit(
            relax.call_dps_packed(region.signature.name, relax.Tuple(arguments), types)
        )
        wanted = [relax.TupleGetItem(results, k) for k in range(len(types) - 1)]
        return wanted[0] if len(wanted) == 1 else relax.Tuple(wanted)
