"""Replaces every region of a module by one statically scheduled kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar

from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.options import Goal
from tvm_rammer.region.compiler import Region, RegionCompiler, signature_of
from tvm_rammer.region.decide_plan import decide_plan
from tvm_rammer.region.marks import regions_of
from tvm_rammer.region.operator_graph import RegionGraph
from tvm_rammer.relax_util import link, rewrite
from tvm_rammer.schedule import AUTO, plan
from tvm_rammer.tensors import constant
from tvm_rammer.transform.remove_dead_code import remove_dead_code


@dataclass(frozen=True)
class CoScheduled:
    """A module that calls a kernel for every region, and the regions."""

    module: tvm.IRModule
    regions: tuple[Region, ...] = ()


def co_schedule(mod: tvm.IRModule, compiler: RegionCompiler, goal: Goal) -> CoScheduled:
    """Plan, verify and compile all regions of a module.

    Parameters
    ----------
    mod : IRModule
        Partitioned; one without regions stays as it is.
    compiler : RegionCompiler
        Makes and remembers what does not depend on the plan.
    goal : Goal
        Its vDevice states the vEUs to plan for.
    """
    if not regions_of(mod):
        return CoScheduled(mod)
    with compiler.target:
        graphs = compiler.measured(compiler.graphs(mod, start=True))
        signatures = tuple(signature_of(each.graph) for each in graphs.values())
        regions = {
            symbol: _planned(graph, compiler, goal, signatures) for symbol, graph in graphs.items()
        }
        kernels = compiler.module(tuple(region.signature for region in regions.values()))
        module = link(replace_regions(mod, regions), kernels)
    return CoScheduled(module, tuple(regions.values()))


def _planned(
    region: RegionGraph,
    compiler: RegionCompiler,
    goal: Goal,
    signatures: tuple[RegionSignature, ...],
) -> Region:
    """A region with its plan and its code; ``signatures`` are those of all regions."""
    backend, graph, options = compiler.backend, region.graph, goal.options
    decision, by_wave, ids = None, options.by_wave, compiler.kernels.ids
    if options.policy == AUTO:
        chosen, decision = decide_plan(
            region,
            goal,
            signature_of(graph),
            lambda: compiler.module(signatures),
            ids,
            compiler.keys(graph),
        )
        program, by_wave = chosen.program, chosen.by_wave
    else:
        costs = backend.costs(goal.vdevice)
        program = plan(graph, goal.vdevice, options.policy, costs, options.max_arena_bytes)
    signature = signature_of(graph, program.num_waves if options.by_wave else 0)
    code = backend.encode(program, signature, ids, by_wave, options.wait_limit)
    program = replace(program, launches=signature.launches())
    return Region(region, program, signature, code, decision)


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
