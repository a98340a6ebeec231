"""Whether a PrimFunc is nothing but loop nests of one block each, over the block's whole domain."""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.kernel.nodes import statements

_SERIAL = tirx.ForKind.SERIAL


def all_plain(func: tirx.PrimFunc) -> bool:
    """Whether every root statement is a plain loop nest, as legalization writes them."""
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize):
        return False
    return all(map(_plain, statements(root.block.body)))


def _plain(statement: Any) -> bool:
    """One serial loop from 0 for each variable of one block, which is run for all of them."""
    extents: dict[Any, int] = {}
    while isinstance(statement, tirx.For) and statement.kind == _SERIAL:
        if not isinstance(statement.extent, tirx.IntImm) or not _zero(statement.min):
            return False
        extents[statement.loop_var] = int(statement.extent)
        statement = statement.body
    if not isinstance(statement, s_tir.SBlockRealize):
        return False
    block, predicate = statement.block, statement.predicate
    if len(block.alloc_buffers) or len(block.match_buffers):
        return False
    if not isinstance(predicate, tirx.IntImm) or not predicate.value:
        return False
    # A loop of one iteration may be missing, and its variable a zero.
    bound = [value for value in statement.iter_values if extents.get(value, 1) > 1]
    wide = [loop for loop, extent in extents.items() if extent > 1]
    return len(bound) == len(wide) == len(set(bound)) and all(
        _zero(axis.dom.min)
        and int(axis.dom.extent) == extents.get(value, 1)
        and (value in extents or _zero(value))
        for value, axis in zip(statement.iter_values, block.iter_vars, strict=True)
    )


def _zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and value.value == 0
