"""A compiler pass that launches what is outside of plans: TVM's own kernels, and of no fixed shape.

Without loops that are bound to threads, TVM compiles a PrimFunc for the host, which cannot read the
memory of the device. What is written as loops has its outermost ones bound if they are parallel,
and is one thread's otherwise; a rule of dlight's answers for everything else.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from tvm_rammer.backend.cuda.codegen.host_and_device import compile_launches
from tvm_rammer.backend.cuda.lower_launch import lane_by_lane
from tvm_rammer.backend.cuda.schedules import usual_schedule
from tvm_rammer.kernel.blocks import block_with, is_scheduled
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.nodes import collect, substitute
from tvm_rammer.kernel.split import root_nests
from tvm_rammer.relax_util import link

#: Threads of a block that takes elements as they come.
_THREADS = 256


@tvm.transform.module_pass(opt_level=0, name="LaunchUnplanned")
class LaunchUnplanned:
    """Compile every PrimFunc that is not the host's, as a function that the module links."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Put compiled functions in the place of PrimFuncs, for the current target."""
        target = tvm.target.Target.current(allow_none=False)
        launched = {
            symbol: func if is_scheduled(func) else _launched(func, target)
            for symbol, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc) and _is_of_the_device(func)
        }
        if not launched:
            return mod
        result = mod.clone()
        result.update({symbol: relax.ExternFunc(symbol.name_hint) for symbol in launched})
        named = {symbol.name_hint: func for symbol, func in launched.items()}
        return link(result, compile_launches(named, target))


def _is_of_the_device(func: tirx.PrimFunc) -> bool:
    """What is scheduled without threads is the host's, as what the host asks for sizes."""
    written = "tirx.is_host_func" not in func.attrs and not is_scheduled(func)
    return written or _has_threads(func.body)


def _has_threads(statement: Any) -> bool:
    loops = collect(statement, tirx.For)
    marks = collect(statement, tirx.AttrStmt)
    return any(loop.thread_binding is not None for loop in loops) or any(
        mark.attr_key == "thread_extent" for mark in marks
    )


def _launched(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    has_threads = _has_threads(func.body)
    if not _is_loops(func):
        scheduled = usual_schedule(func, target, has_threads)
        if scheduled is not None:
            return lane_by_lane(scheduled)
    return func if has_threads else lane_by_lane(_with_body(func, _as_written(func.body)))


def _is_loops(func: tirx.PrimFunc) -> bool:
    """Whether there are no blocks but the root, and so nothing for rules to schedule."""
    return len(collect(func.body, s_tir.SBlock)) < 2


def _with_body(func: tirx.PrimFunc, body: Any) -> tirx.PrimFunc:
    """With other statements within its root block, where it has one."""
    realize = func.body
    if not isinstance(realize, s_tir.SBlockRealize):
        return func.with_body(body)
    block = block_with(realize.block, body=body)
    return func.with_body(s_tir.SBlockRealize(realize.iter_values, realize.predicate, block))


def _as_written(body: Any) -> Any:
    """Each nest a launch of as many threads as it has parallel iterations."""
    nests = root_nests(body)
    if not all(isinstance(nest, tirx.For) for nest in nests):
        return _bound(tirx.const(1, "int32"), lambda _: sequence(nests))
    return sequence([_nest(nest) for nest in nests])


def _nest(nest: tirx.For) -> Any:
    around: list[tirx.For] = []
    inner: Any = nest
    while isinstance(inner, tirx.For) and inner.kind == tirx.ForKind.PARALLEL:
        around.append(inner)
        inner = inner.body
    extents = [loop.extent.astype("int64") for loop in around]

    def body(element: Any) -> Any:
        at = {}
        for loop, extent in zip(reversed(around), reversed(extents), strict=True):
            place = tirx.floormod(element, extent)
            at[loop.loop_var] = loop.min + place.astype(str(loop.loop_var.ty))
            element = tirx.floordiv(element, extent)
        return substitute(inner, at)

    return _bound(prod(extents, start=tirx.const(1, "int64")), body)


def _bound(total: Any, body: Any) -> Any:
    """``body`` of every element below ``total``, a thread for each."""
    one = isinstance(total, tirx.IntImm) and int(total) == 1
    threads = 1 if one else _THREADS
    blocks = tirx.floordiv(total + (threads - 1), threads).astype("int32")
    block, thread = tirx.Var("block", "int32"), tirx.Var("thread", "int32")
    element = block.astype("int64") * threads + thread.astype("int64")
    inside = body(element) if one else tirx.IfThenElse(element < total, body(element), None)
    for variable, extent, tag in (
        (thread, tirx.const(threads, "int32"), "threadIdx.x"),
        (block, blocks, "blockIdx.x"),
    ):
        axis = tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)
        start = tirx.const(0, "int32")
        inside = tirx.For(variable, start, extent, tirx.ForKind.THREAD_BINDING, inside, axis)
    return inside
