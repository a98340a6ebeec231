"""Convolutions of groups are products, one for each group.

The channels of results have one axis, and the group is a quotient of it, which rules for products
do not see. Here two axes tell the groups from the results of one.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx

from tvm_rammer.kernel.blocks import is_reduction, root_blocks, variables
from tvm_rammer.kernel.nodes import collect


def with_groups(func: tirx.PrimFunc, outputs: int) -> tirx.PrimFunc | None:
    """A PrimFunc whose sums have an axis for groups, of multiples of ``outputs`` results each.

    Other groups would be padded to that, and what comes after, which has one axis for all channels
    again, would take padding for results of the next group. None of what has no such sum.
    """
    if not collect(func.body, tirx.FloorDiv):
        return None
    sch = s_tir.Schedule(func)
    for block in root_blocks(sch):
        split = _group_axis(sch.get(block)) if is_reduction(sch, block) else None
        if split is None:
            continue
        number, size = split
        axes = sch.get(block).iter_vars
        if size % outputs or int(axes[number].dom.extent) % size:
            return None
        sch.transform_block_layout(block, _two_of_one(len(axes), number, size))
        grouped = _simplified(sch.mod["main"])
        return grouped if _tells_results(grouped, number + 1) else None
    return None


def _tells_results(func: tirx.PrimFunc, number: int) -> bool:
    """Whether the data of a sum is the same along an axis, and its weights alone differ."""
    sch = s_tir.Schedule(func)
    sums = [sch.get(block) for block in root_blocks(sch) if is_reduction(sch, block)]
    reads = [
        any(block.iter_vars[number].var in variables(part.min) for part in operand.region)
        for block in sums
        for operand in block.reads
    ]
    return reads == [False, True]


def _group_axis(block: Any) -> tuple[int, int] | None:
    """The axis of a block that it divides for the group, and by how much."""
    for division in collect(block.body, tirx.FloorDiv):
        for number, axis in enumerate(block.iter_vars):
            if axis.var.same_as(division.a) and isinstance(division.b, tirx.IntImm):
                return number, int(division.b)
    return None


def _two_of_one(rank: int, number: int, size: int) -> tirx.IndexMap:
    axes = [tirx.Var(f"i{k}", "int32") for k in range(rank)]
    two = [tirx.FloorDiv(axes[number], size), tirx.FloorMod(axes[number], size)]
    return tirx.IndexMap(axes, [*axes[:number], *two, *axes[number + 1 :]], None)


def _simplified(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Quotients as the axes of blocks say that they are."""

    def simplified(block: Any) -> Any:
        analyzer = sym.Analyzer()
        for axis in block.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        return tvm_ffi.structural_map(block, (tirx.FloorDiv, analyzer.simplify))

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, simplified)))
