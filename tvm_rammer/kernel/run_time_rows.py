"""Operators of as many rows as the run finds, as blocks of a number of rows that is known.

An operator that computes every row of its results from the same row of its operands computes some
rows at once by a kernel for so many, which any rule may schedule. A block that is not full reads
its last row again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import PrimType

from tvm_rammer.kernel.nodes import collect, substitute

#: Elements of the results of a block, and the most rows that it has.
_ELEMENTS, _MOST_ROWS = 1 << 15, 64


@dataclass(frozen=True)
class RowBlocks:
    """An operator of an unknown number of rows.

    Attributes
    ----------
    func : tirx.PrimFunc
        It computes ``rows`` rows.
    rows : int
    has_rows : tuple of bool
        Of every parameter, whether its first axis are the rows.
    """

    func: tirx.PrimFunc
    rows: int
    has_rows: tuple[bool, ...]


def row_blocks(func: tirx.PrimFunc) -> RowBlocks | None:
    """The blocks of an operator; ``None`` if a row is not computed from the same row alone.

    And if it sums nothing: then it takes no longer than the blocks take to move.
    """
    if any(isinstance(param.ty, PrimType) for param in func.params):
        return None
    sizes = [size for param in func.params for size in param.shape]
    symbols = [size for size in sizes if not isinstance(size, tirx.IntImm)]
    if not symbols or not all(size.same_as(symbols[0]) for size in symbols):
        return None
    rows = symbols[0]
    if not isinstance(rows, tirx.Var) or not _computes_rows(func, rows):
        return None
    has_rows = tuple(_has_rows(param, rows) for param in func.params)
    result = func.params[-1]
    if not has_rows[-1]:
        return None
    block = max(1, min(_MOST_ROWS, _ELEMENTS // max(1, prod(map(int, result.shape[1:])))))
    known = tvm_ffi.structural_map(
        func, (tirx.Var, lambda var: tirx.IntImm("int64", block) if var.same_as(rows) else var)
    )
    return RowBlocks(known, block, has_rows)


def in_blocks(blocks: RowBlocks, kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function of any number of rows that calls a kernel for some over and over.

    Parameters
    ----------
    blocks : RowBlocks
    kernel : tirx.PrimFunc
        What ``blocks.func`` became, scheduled; parameters without rows may have other shapes.
    """
    kernel = s_tir.renew_defs(kernel)
    rows, block = tirx.Var("rows", "int64"), tirx.Var("block", "int64")
    whole, parts = [], {}
    for param, has_rows in zip(kernel.params, blocks.has_rows, strict=True):
        if not has_rows:
            whole.append(param)
            continue
        shape, dtype = list(param.shape), str(param.dtype)
        whole.append(tirx.decl_buffer([rows, *shape[1:]], dtype, param.name))
        parts[param] = tirx.decl_buffer(shape, dtype, f"some_{param.name}")
    body = substitute(kernel.body, parts)
    first = block * blocks.rows
    read = [
        _copied(parts[param], each, blocks.rows, first, rows, back=False)
        for param, each in zip(kernel.params[:-1], whole, strict=False)
        if param in parts
    ]
    write = _copied(parts[kernel.params[-1]], whole[-1], blocks.rows, first, rows, back=True)
    steps = tirx.SeqStmt([*read, body, write])
    count = tirx.floordiv(rows + (blocks.rows - 1), tirx.IntImm("int64", blocks.rows))
    zero = tirx.IntImm("int64", 0)
    loop = tirx.For(block, zero, count, tirx.ForKind.SERIAL, steps)
    root = s_tir.SBlock([], [], [], "root", loop, alloc_buffers=list(parts.values()))
    return tirx.PrimFunc(whole, s_tir.SBlockRealize([], True, root), attrs=kernel.attrs)


def _copied(part: Any, whole: Any, count: int, first: Any, rows: Any, back: bool) -> tirx.Stmt:
    """Copies the rows of a block, or of what it has computed those that there are."""
    row = tirx.Var("row", "int64")
    inner = [tirx.Var(f"axis_{axis}", "int64") for axis in range(1, len(part.shape))]
    place = first + row
    if back:
        copy: Any = tirx.BufferStore(whole, tirx.BufferLoad(part, [row, *inner]), [place, *inner])
    else:
        inside = tirx.min(place, rows - 1)
        copy = tirx.BufferStore(part, tirx.BufferLoad(whole, [inside, *inner]), [row, *inner])
    zero = tirx.IntImm("int64", 0)
    for var, extent in reversed(list(zip(inner, part.shape[1:], strict=True))):
        copy = tirx.For(var, zero, extent, tirx.ForKind.SERIAL, copy)
    if back:
        copy = tirx.IfThenElse(place < rows, copy, None)
    return tirx.For(row, zero, tirx.IntImm("int64", count), tirx.ForKind.SERIAL, copy)


def _has_rows(buffer: Any, rows: Any) -> bool:
    return bool(len(buffer.shape)) and buffer.shape[0].same_as(rows)


def _computes_rows(func: tirx.PrimFunc, rows: Any) -> bool:
    """Whether every block computes a row from the same row, and one of them sums something."""
    blocks = collect(func.body, s_tir.SBlockRealize)
    sums = any(var.iter_type == var.CommReduce for each in blocks for var in each.block.iter_vars)
    allocated = [each for realize in blocks for each in realize.block.alloc_buffers]
    is_plain = all(
        isinstance(size, tirx.IntImm) or (axis == 0 and size.same_as(rows))
        for each in (*func.params, *allocated)
        for axis, size in enumerate(each.shape)
    )
    inner = [each for each in blocks if each.block.iter_vars]
    return sums and is_plain and all(_computes_row(each, rows) for each in inner)


def _computes_row(realize: Any, rows: Any) -> bool:
    block = realize.block
    own = [var for var in block.iter_vars if _mentions(var.dom.extent, rows)]
    if not own:
        # What is the same for all rows may not read any.
        return not any(_has_rows(buffer, rows) for buffer, _ in _accesses(block))
    if len(own) != 1 or own[0].iter_type == own[0].CommReduce:
        return False
    row = own[0].var
    stores = [block.body, *([] if block.init is None else [block.init])]
    if not all(isinstance(store, tirx.BufferStore) for store in stores):
        return False
    for buffer, indices in _accesses(block):
        first, others = (
            (list(indices[:1]), indices[1:]) if _has_rows(buffer, rows) else ([], indices)
        )
        if not all(index.same_as(row) for index in first):
            return False
        if any(_mentions(_without_loads(index), var) for index in others for var in (row, rows)):
            return False
    # Neither what row it is decides anything, nor how many there are.
    values = (_without_loads(store.value) for store in stores)
    return not any(_mentions(value, var) for value in values for var in (row, rows))


def _without_loads(value: Any) -> Any:
    return tvm_ffi.structural_map(
        value, (ir.TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype)))
    )


def _accesses(block: Any) -> Iterator[tuple[Any, Any]]:
    for part in (block.body, *([] if block.init is None else [block.init])):
        for store in collect(part, tirx.BufferStore):
            yield store.buffer, store.indices
        for load in collect(part, ir.TensorLoad):
            yield load.source, load.indices


def _mentions(expression: Any, variable: Any) -> bool:
    return any(var.same_as(variable) for var in collect(expression, tirx.Var))
