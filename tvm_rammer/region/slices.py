"""Slices without copies: who reads a slice reads it where its source lies.

A slice of some rows of a tensor, or of some columns of each row, becomes a *part* of its source
(see :mod:`tvm_rammer.region.parts`): the steps of a sequence that were multiplied together, the
halves of the channels, the gates of a cell. A slice that has to be somewhere else, such as in an
output, is copied as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import (
    attempt,
    root_blocks,
    schedule_of,
    sole_block,
    with_statements,
)
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.pointwise import flat_index, steps_and_start
from tvm_rammer.kernel.split import root_nests
from tvm_rammer.region.parts import Parts, RowColumns
from tvm_rammer.region.region_calls import TensorCall
from tvm_rammer.rprogram import dtype_bytes
from tvm_rammer.rprogram.rows import row_strides


@dataclass(frozen=True)
class _Elements:
    """``length`` elements of each of ``count`` rows of ``pitch``, the first one at ``start``.

    Of a single row the pitch does not matter.
    """

    start: int
    length: int
    count: int = 1
    pitch: int = 0


class SlicesInPlace:
    """Lets results of slices lie in their sources.

    Parameters
    ----------
    parts : Parts
        Of the region's buffers.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._known: dict[Any, _Slices] = {}

    def replacement(self, call: TensorCall) -> list[TensorCall]:
        """What is left to do for a call: nothing, some of its slices, or itself."""
        if len(call.operands) != 1:
            return [call]
        if call.func not in self._known:
            self._known[call.func] = _Slices.of(call.func)
        slices = self._known[call.func]
        found = zip(call.results, slices.elements, strict=False)
        moved = [result for result, columns in found if self._move(call, result, columns)]
        if not moved:
            return [call]
        self.parts.forget(call)
        rest = [k for k, result in enumerate(call.results) if result not in moved]
        return [self.parts.remember(slices.only(call, k)) for k in rest]

    def _move(self, call: TensorCall, result: int, columns: _Elements | None) -> bool:
        place = self._place(call, columns) if columns is not None else None
        if place is None or not self.parts.may_lie(result, place):
            return False
        self.parts.move(result, place)
        return True

    def _place(self, call: TensorCall, columns: _Elements) -> RowColumns | None:
        source = call.operands[0]
        if not isinstance(source, int) or not columns.length:
            return None
        item = dtype_bytes(self.parts.buffers[source].dtype)
        rows = self.parts.columns(source, columns.count)
        if rows is None or (columns.count > 1 and rows.length != columns.pitch * item):
            return None
        if (columns.start + columns.length) * item > rows.length:
            return None
        return rows.part(columns.start * item, columns.length * item)


@dataclass(frozen=True)
class _Slices:
    """Which elements of its only operand each result of a PrimFunc is.

    Nothing if it does anything else; ``None`` for elements that do not lie like columns of rows.
    """

    func: tirx.PrimFunc
    elements: tuple[_Elements | None, ...] = ()

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> _Slices:
        if func.attrs and "tirx.is_scheduled" in func.attrs:
            return cls(func)
        stores = collect(func.body, tirx.BufferStore)
        if not stores or not all(isinstance(store.value, TensorLoad) for store in stores):
            return cls(func)
        func = _inlined(func)
        source, *results = func.params
        nests = root_nests(func.body)
        if len(nests) != len(results):
            return cls(func)
        copied = [_copied(nest, source, made) for nest, made in zip(nests, results, strict=True)]
        found = [_elements(*each) for each in copied if each is not None]
        return cls(func, tuple(found) if len(found) == len(results) else ())

    def only(self, call: TensorCall, number: int) -> TensorCall:
        """A call of the PrimFunc without its other results."""
        func = with_statements(self.func, root_nests(self.func.body)[number])
        params = [func.params[0], func.params[1 + number]]
        func = tirx.PrimFunc(params, func.body, func.ret_type, attrs=call.func.attrs)
        return TensorCall(call.name, func, call.operands, (call.results[number],))


def _inlined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Copies of copies, as fusion leaves a slice and its reshape, as one."""
    if len(root_nests(func.body)) < len(func.params):
        return func
    sch = schedule_of(func)
    for block in root_blocks(sch):
        attempt(sch.compute_inline, block)
    return sch.mod["main"]


def _copied(nest: Any, source: Any, result: Any) -> tuple[list[int], int, tuple[int, ...]] | None:
    """The source's elements that a nest copies one by one into a result: the steps to the next
    index of each axis, the first element, and the shape of the result.
    """
    block = sole_block(nest)
    if block is None or not isinstance(block.body, tirx.BufferStore):
        return None
    store = block.body
    if not store.buffer.same_as(result) or not store.value.source.same_as(source):
        return None
    shape = tuple(int(extent) for extent in result.shape)
    axes = [axis.var for axis in block.iter_vars]
    analyzer = sym.Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    written = steps_and_start(analyzer.simplify(flat_index(result, store.indices)), axes)
    read = steps_and_start(analyzer.simplify(flat_index(source, store.value.indices)), axes)
    if len(axes) != len(shape) or written is None or read is None:
        return None
    return (*read, shape) if _elements(*written, shape) == _Elements(0, prod(shape)) else None


def _elements(steps: list[int], start: int, shape: tuple[int, ...]) -> _Elements | None:
    length = 1
    for step, extent in zip(reversed(steps), reversed(shape), strict=True):
        if extent > 1 and step != length:
            break
        length *= extent
    else:
        return _Elements(start, length)
    strides = row_strides(shape, length, step)
    if (
        strides is None
        or step < length
        or any(mine != its for mine, its, n in zip(steps, strides, shape, strict=True) if n > 1)
    ):
        return None
    return _Elements(start, length, prod(shape) // length, step)
