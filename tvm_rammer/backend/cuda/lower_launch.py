"""A launch by itself, lowered as TVM would up to where host and device are split.

One thing differs. TVM writes a vector wherever lanes lie side by side, and a GPU ends the run at
one that does not begin at a multiple of its size: rows of an odd length have such places, and rows
of which only a part is a tensor. Nor has CUDA C operators for vectors of truths. A launch with such
vectors goes lane by lane.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad

from tvm_rammer.backend.cuda.launches import launches_of
from tvm_rammer.backend.cuda.whole_vectors import WholeVectors
from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.lowering.index_divisions import (
    HideDivisions,
    PositiveDivision,
    ShowDivisions,
)
from tvm_rammer.kernel.lowering.safe_division import SafeDivision
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.work import element

#: Where vectors lie in registers, wherever they begin.
_REGISTERS = ("local", "warp", "wmma")


def lowered_launch(launch: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Lower one of :class:`~tvm_rammer.backend.cuda.launches.Launches`."""
    vectors = _with_vectors(launch, target)
    if _any_unaligned(vectors) or _any_of_truths(vectors):
        vectors = _with_vectors(lane_by_lane(launch), target)
    high, low = s_tir.transform, tirx.transform
    passes = [
        *(high.InjectVirtualThread(), high.InjectDoubleBuffer()),
        *(low.StorageRewrite(), high.HoistIfThenElse(), low.UnrollLoop()),
        *(high.RenormalizeSplitPattern(), low.StmtSimplify(), low.RemoveNoOp()),
        *(high.RewriteUnsafeSelect(), low.CommonSubexprElim(), low.FP8ComputeLegalize()),
        *(low.VerifyMemory(), low.AnnotateEntryFunc()),
        *(high.ThreadSync("shared"), high.ThreadSync("shared.dyn"), high.ThreadSync("warp")),
        *(high.InferFragment(), high.LowerThreadAllreduce(), high.MergeSharedMemoryAllocations()),
    ]
    return _run(passes, vectors, target)


def with_aligned_vectors(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """A scheduled PrimFunc, lane by lane if one of its launches has vectors that no GPU loads."""
    try:
        launches = launches_of(func).functions
    except ModelError:
        return func
    vectors = [_with_vectors(launch, target) for launch in launches]
    refused = any(_any_unaligned(each) or _any_of_truths(each) for each in vectors)
    return lane_by_lane(func) if refused else func


def _with_vectors(launch: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    high, low = s_tir.transform, tirx.transform
    passes = [
        *(low.BindTarget(target), SafeDivision(), PositiveDivision()),
        *(high.CanonicalizeLoop(), high.LowerCrossThreadReduction(), high.LowerInitBlock()),
        *(high.PlanAndUpdateBufferAllocationLocation(), high.ConvertBlocksToOpaque()),
        *(high.LiftThreadBinding(), high.ManifestSharedMemoryLocalStage()),
        *(high.CompactBufferAllocation(), high.LowerAutoCopy(), high.UnifyThreadBinding()),
        *(high.LowerMatchBuffer(), high.StmtSimplify(), high.InjectPermutedLayout()),
        *(high.AnnotateIrregularLoop(), high.InjectSoftwarePipeline()),
        *(high.TransformMmaBufferLayout(), high.LowerOpaqueBlock()),
        *(HideDivisions(), low.FlattenBuffer(), ShowDivisions()),
        *(low.BF16ComputeLegalize(), low.NarrowDataType(32), high.LoopPartition()),
        *(WholeVectors(), low.VectorizeLoop(True)),
    ]
    return _run(passes, launch, target)


def _run(passes: list[Any], func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    with target:
        return tvm.transform.Sequential(passes)(tvm.IRModule({"main": func}))["main"]


def lane_by_lane(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc whose vectors are loops."""

    def unrolled(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.VECTORIZED:
            return loop
        bounds = (loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED)
        return tirx.For(*bounds, loop.body, annotations=loop.annotations, step=loop.step)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, unrolled)))


def _any_unaligned(func: tirx.PrimFunc) -> bool:
    """Whether there are vectors in memory that may begin elsewhere than at their multiples."""
    accesses = [(load.source, load.indices) for load in collect(func.body, TensorLoad)]
    accesses += [(store.buffer, store.indices) for store in collect(func.body, tirx.BufferStore)]
    analyzer = sym.Analyzer()
    return any(
        isinstance(index, tirx.Ramp) and not _is_aligned(index, analyzer)
        for buffer, indices in accesses
        if not str(buffer.scope()).startswith(_REGISTERS)
        for index in indices
    )


def _any_of_truths(func: tirx.PrimFunc) -> bool:
    """Whether truths are put together in vectors, which CUDA C has no operators for."""
    found = collect(func.body, tirx.Not, tirx.And, tirx.Or)
    return any(element(str(each.ty))[1] > 1 for each in found)


def _is_aligned(index: tirx.Ramp, analyzer: sym.Analyzer) -> bool:
    if not (isinstance(index.stride, tirx.IntImm) and int(index.stride) == 1):
        # Lanes that lie apart are loaded one by one.
        return True
    lanes = int(index.lanes)
    places = analyzer.modular_set(index.base)
    return int(places.coeff) % lanes == 0 and int(places.base) % lanes == 0
