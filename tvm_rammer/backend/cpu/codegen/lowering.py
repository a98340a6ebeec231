"""The lowering of everything that this package compiles: TVM's own, with vector code for libm's.

What passes are needless is left out: they would take most of the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import tvm
from tvm import tirx

from tvm_rammer.backend.cpu.codegen.local_buffers import UnmarkLocalBuffers
from tvm_rammer.backend.cpu.codegen.marked_loops import LinkRolledLoops, SkipNeedlessCopies
from tvm_rammer.backend.cpu.codegen.neighbour_products import MultiplyNeighbours
from tvm_rammer.backend.cpu.codegen.scalar_calls import KeepScalarCallsInLoops
from tvm_rammer.backend.cpu.codegen.vector_math_calls import (
    LinkElementaryFunctions,
    NameElementaryFunctions,
)
from tvm_rammer.kernel.lowering.lowering_passes import lowering

#: Name under which our lowering is known to ``tvm.tirx.build``.
_PIPELINE = "tvm_rammer"

#: Attribute of a module all of whose functions are free of blocks and have flat buffers, as rTask
#: bodies are when they leave :mod:`tvm_rammer.kernel.split`.
FLAT = "tvm_rammer.flat"
#: What takes long on such a module and changes at most how an index is written: there are no blocks
#: and no threads, expressions were simplified and narrowed there, and will be again as vectors.
_NEEDLESS = (
    "s_tir.CompactBufferAllocation",
    "s_tir.InjectPermutedLayout",
    "s_tir.InjectSoftwarePipeline",
    "s_tir.InjectVirtualThread",
    "s_tir.LoopPartition",
    "s_tir.LowerMatchBuffer",
    "s_tir.PlanAndUpdateBufferAllocationLocation",
    "s_tir.StmtSimplify",
    "s_tir.ThreadSync",
    "tirx.FlattenBuffer",
    "tirx.NarrowDataType",
    "tirx.RemoveNoOp",
)
#: Functions in a module: modules are compiled side by side, and each takes a while by itself.
_FUNCTIONS = 16


def build_side_by_side(
    modules: Sequence[tvm.IRModule], target: tvm.target.Target
) -> list[tvm.runtime.Module]:
    """Compile modules in a thread each."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return list(threads.map(module_builder(target), modules))


def build_operators(
    functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
) -> list[tvm.runtime.Module]:
    """Compile PrimFuncs for calls from Relax, which pass their tensors in order.

    Parameters
    ----------
    functions : mapping of str to PrimFunc
        By the symbol under which a module is to export them.
    target : Target
        Of kind ``llvm``.
    """
    symbols = list(functions)
    parts = [symbols[k : k + _FUNCTIONS] for k in range(0, len(symbols), _FUNCTIONS)]
    modules = [tvm.IRModule({name: _exported(name, functions[name]) for name in p}) for p in parts]
    return build_side_by_side(modules, target)


def _exported(symbol: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
    return func.with_attrs({"global_symbol": symbol, "tirx.is_scheduled": True, "s_tir": True})


def module_builder(target: tvm.target.Target) -> Callable[[tvm.IRModule], tvm.runtime.Module]:
    """What compiles a module in any thread; TVM keeps its contexts by thread: it gets this one's.

    Parameters
    ----------
    target : Target
        Of kind ``llvm``.
    """
    current = tvm.transform.PassContext.current()
    pipeline = lowering_pipeline()

    def build(module: tvm.IRModule) -> tvm.runtime.Module:
        with tvm.transform.PassContext(current.opt_level, config=dict(current.config)):
            return tvm.tirx.build(module, target=target, pipeline=pipeline)

    return build


def lowering_pipeline() -> str:
    """The name of our lowering, registered: what ``tvm.tirx.build`` takes as ``pipeline``."""
    after = (LinkElementaryFunctions, LinkRolledLoops)
    before = (
        *(NameElementaryFunctions, MultiplyNeighbours),
        *(KeepScalarCallsInLoops, SkipNeedlessCopies, UnmarkLocalBuffers),
    )
    return lowering(_PIPELINE, before, after, _needless)


def _needless(mod: tvm.IRModule) -> Sequence[str]:
    return _NEEDLESS if mod.attrs and FLAT in mod.attrs else ()
