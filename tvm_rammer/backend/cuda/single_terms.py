"""Sums of one term are that term: what dlight puts behind such a sum it adds twice.

A convolution of one channel by a kernel of one place is such a sum, or a mean over an axis of one.
TVM drops the loop of a sum whose axis has extent 1 and keeps that it starts from 0; inlined into
it, what follows, a bias say, is added to the start and to the term.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import block_with, is_reduced


def with_single_terms(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc in which reductions have several terms; itself if all have."""
    body = tvm_ffi.structural_map(func.body, (s_tir.SBlock, _written))
    return func if body.same_as(func.body) else func.with_body(body)


def _written(block: Any) -> Any:
    start, step = block.init, block.body
    if not isinstance(start, tirx.BufferStore) or not isinstance(step, tirx.BufferStore):
        return block
    if any(is_reduced(axis) and not _is_one(axis.dom.extent) for axis in block.iter_vars):
        return block

    def started(load: Any) -> Any:
        return start.value if load.source.same_as(step.buffer) else load

    value = tvm_ffi.structural_map(step.value, (TensorLoad, started))
    axes = [
        tirx.IterVar(axis.dom, axis.var, tirx.IterVar.DataPar) if is_reduced(axis) else axis
        for axis in block.iter_vars
    ]
    written = tirx.BufferStore(step.buffer, value, step.indices)
    return block_with(block, iter_vars=axes, body=written, init=None)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1
