"""Attentions of as many queries, places and batches as the run finds.

Many queries fill vectors (:class:`.ManyQueries`); of few each is walked alone, as
:class:`.AttentionKernel` does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.backend.cpu.templates.attention_kernel import AttentionKernel
from tvm_rammer.backend.cpu.templates.many_queries import ManyQueries
from tvm_rammer.backend.cpu.templates.one_query import OneQuery
from tvm_rammer.kernel.attention_blocks import AttentionFunc
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.loop_nests import tensors_of
from tvm_rammer.kernel.loops import parallel
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: Places of a block.
_BLOCK = 64
#: So many queries are few.
_FEW = 3


def open_attention(func: tirx.PrimFunc, vdevice: VDevice) -> tirx.PrimFunc | None:
    """A scheduled attention of open sizes; ``None`` for another function."""
    found = AttentionFunc.of(func)
    if found is None:
        return None
    tensors = tensors_of(found.func)
    named = {size for each in tensors for size in each.shape if isinstance(size, tirx.Var)}
    sizes = (found.batches, found.rows, found.places)
    if not variables([each for each in sizes if not isinstance(each, int)]) <= named:
        # A size that no tensor tells would have to be given.
        return None
    lanes = vdevice.vector_bytes // dtype_bytes("float32")
    few = _FewQueries(found, lanes, vdevice.vector_registers // 2).tiles
    many = ManyQueries(found, lanes).tiles
    if isinstance(found.rows, int):
        body = few() if found.rows <= _FEW else many()
    else:
        body = tirx.IfThenElse(found.rows <= _FEW, few(), many())
    root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
    return tirx.PrimFunc(tensors, root, attrs=found.func.attrs)


@dataclass(frozen=True)
class _FewQueries:
    """A tile for each query."""

    func: AttentionFunc
    lanes: int
    registers: int

    def tiles(self) -> Any:
        """The loop over them."""
        rows = self.func.rows

        def tile(index: Any) -> Any:
            one = OneQuery(self.func, index % rows)
            kernel = AttentionKernel(one, _BLOCK, 1, self.lanes, self.registers)
            return kernel.whole(index // rows)

        return parallel("query", self.func.batches * rows, tile)
