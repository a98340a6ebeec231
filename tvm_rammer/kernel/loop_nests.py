"""The loop nests of a PrimFunc that nobody has scheduled: each stores an element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import PrimType

from tvm_rammer.kernel.blocks import is_reduced, loads
from tvm_rammer.kernel.nodes import collect


class NotInBlocksError(Exception):
    """An operator is made otherwise, or a place is not computed from its neighbours alone."""


@dataclass(frozen=True)
class LoopNest:
    """Loops around one block, which stores an element: of a sum its first value too."""

    block: Any
    update: Any
    init: Any = None

    @property
    def sums(self) -> bool:
        """Whether elements are sums, or another reduction."""
        return any(map(is_reduced, self.block.iter_vars))

    def loops(self) -> Any:
        """Its statement."""
        variables, name = self.block.iter_vars, self.block.name_hint
        block = s_tir.SBlock(variables, [], [], name, self.update, self.init)
        touched = {self.update.buffer, *(each.source for each in loads(self.update))}
        reads, writes, _ = s_tir.analysis.get_sblock_access_region(block, {v: v for v in touched})
        block = s_tir.SBlock(variables, reads, writes, name, self.update, self.init)
        places = [tirx.Var(var.var.name, var.var.ty.dtype) for var in variables]
        nested: Any = s_tir.SBlockRealize(places, True, block)
        for place, var in reversed(list(zip(places, variables, strict=True))):
            nested = tirx.For(place, var.dom.min, var.dom.extent, tirx.ForKind.SERIAL, nested)
        return nested


def tensors_of(func: tirx.PrimFunc) -> list[Any]:
    """The parameters that are no numbers."""
    return [each for each in func.params if not isinstance(each.ty, PrimType)]


def nests_of(func: tirx.PrimFunc) -> list[LoopNest]:
    """The nests in program order.

    Raises
    ------
    NotInBlocksError
        A block does something else than to store an element.
    """
    blocks = [each.block for each in collect(func.body, s_tir.SBlockRealize)]
    found = [LoopNest(each, each.body, each.init) for each in blocks if each.iter_vars]
    stores = [part for nest in found for part in (nest.update, nest.init) if part is not None]
    if not all(isinstance(part, tirx.BufferStore) for part in stores):
        raise NotInBlocksError
    return found


def func_of(
    params: Sequence[Any], nests: Sequence[LoopNest], allocated: Sequence[Any], attrs: Any
) -> tirx.PrimFunc:
    """A PrimFunc of nests."""
    loops = [nest.loops() for nest in nests]
    body = loops[0] if len(loops) == 1 else tirx.SeqStmt(loops)
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=list(allocated))
    return tirx.PrimFunc(list(params), s_tir.SBlockRealize([], True, root), attrs=attrs)
