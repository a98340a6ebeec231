"""A compiler pass that lets buffers which are local to a loop lie on the stack, or in registers.

TVM asks its allocator for each that is marked as local, as often as its loop runs; of those that
are not marked it leaves the small ones to LLVM.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.lowering.with_bodies import with_bodies
from tvm_rammer.kernel.nodes import collect


@tvm.transform.module_pass(opt_level=0, name="UnmarkLocalBuffers")
class UnmarkLocalBuffers:
    """Take the mark away, which means something on GPUs."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, _unmarked)


def _unmarked(body: Any) -> Any:
    marked = [each.buffer for each in collect(body, tirx.AllocBuffer)]
    others = {
        buffer: tirx.decl_buffer(buffer.shape, buffer.dtype, buffer.name)
        for buffer in marked
        if buffer.scope() == "local"
    }
    if not others:
        return body

    def allocation(node: tirx.AllocBuffer) -> Any:
        return tirx.AllocBuffer(others[node.buffer]) if node.buffer in others else node

    def load(node: Any) -> Any:
        return tirx.BufferLoad(others[node.source], node.indices) if node.source in others else node

    def store(node: tirx.BufferStore) -> Any:
        if node.buffer not in others:
            return node
        return tirx.BufferStore(others[node.buffer], node.value, node.indices)

    changes = (tirx.AllocBuffer, allocation), (TensorLoad, load), (tirx.BufferStore, store)
    return tvm_ffi.structural_map(body, changes)
