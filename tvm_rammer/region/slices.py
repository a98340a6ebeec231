"""Slices without copies: who reads a slice reads it where its source lies.

A slice of some rows of a tensor, or of some columns of each row, becomes a *part* of its source
(see :mod:`tvm_rammer.region.buffer_parts`): the steps of a sequence that were multiplied together,
the halves of the channels, the gates of a cell. A slice that has to be somewhere else, such as in
an output, is copied as before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import is_scheduled, sole_block, with_statements
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.pointwise import flat_index, steps_and_start
from tvm_rammer.kernel.split import root_nests
from tvm_rammer.region.buffer_parts import Parts, RowColumns
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
    """What a PrimFunc that only copies has its results from.

    Attributes
    ----------
    func : tirx.PrimFunc
    elements : tuple of _Elements or None
        Of the only operand, by result; nothing if the PrimFunc does anything else, ``None`` for
        elements that do not lie like columns of rows.
    nests : tuple of tuple
        The statements that make each result: fusion copies a slice on, for example to reshape it.
    """

    func: tirx.PrimFunc
    elements: tuple[_Elements | None, ...] = ()
    nests: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> _Slices:
        if is_scheduled(func) or not isinstance(func.body, s_tir.SBlockRealize):
            return cls(func)
        source, *results = func.params
        size = prod(int(extent) for extent in source.shape)
        made: dict[Any, tuple[_Elements | None, tuple[Any, ...]]] = {
            source: (_Elements(0, size), ())
        }
        for nest in root_nests(func.body):
            copy = _Copy.of(nest)
            if copy is None or copy.source not in made or copy.source in results:
                return cls(func)
            elements, before = made[copy.source]
            made[copy.result] = _elements_of(elements, copy.elements), (*before, nest)
        if not all(result in made for result in results):
            return cls(func)
        elements, nests = zip(*(made[result] for result in results), strict=True)
        return cls(func, elements, nests)

    def only(self, call: TensorCall, number: int) -> TensorCall:
        """A call of the PrimFunc without its other results."""
        nests = self.nests[number]
        body = nests[0] if len(nests) == 1 else tirx.SeqStmt(nests)
        stored = {store.buffer for store in collect(body, tirx.BufferStore)}
        between = [each for each in self.func.body.block.alloc_buffers if each in stored]
        func = with_statements(self.func, body, between)
        params = [func.params[0], func.params[1 + number]]
        func = tirx.PrimFunc(params, func.body, func.ret_type, attrs=func.attrs)
        return TensorCall(call.name, func, call.operands, (call.results[number],))


class _Copy(NamedTuple):
    """Which elements of a buffer all elements of another are copied from."""

    source: Any
    result: Any
    elements: _Elements | None

    @classmethod
    def of(cls, nest: Any) -> _Copy | None:
        """What a nest copies, ``None`` if it does something else."""
        block = sole_block(nest)
        if block is None or not isinstance(block.body, tirx.BufferStore):
            return None
        store = block.body
        load = store.value
        if not isinstance(load, TensorLoad) or len(store.indices) != len(block.iter_vars):
            return None
        shape = tuple(int(extent) for extent in store.buffer.shape)
        axes, analyzer = [axis.var for axis in block.iter_vars], sym.Analyzer()
        for axis in block.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        written, read = (
            steps_and_start(analyzer.simplify(flat_index(buffer, indices)), axes)
            for buffer, indices in ((store.buffer, store.indices), (load.source, load.indices))
        )
        if written is None or _elements(*written, shape) != _Elements(0, prod(shape)):
            return None
        return cls(load.source, store.buffer, None if read is None else _elements(*read, shape))


def _elements_of(inner: _Elements | None, outer: _Elements | None) -> _Elements | None:
    """What elements of elements are."""
    if inner is None or outer is None:
        return None
    if inner.count == 1:
        return replace(outer, start=inner.start + outer.start)
    if outer == _Elements(0, inner.length * inner.count):
        return inner
    same_rows = outer.count == inner.count and outer.pitch == inner.length
    if not same_rows or outer.start + outer.length > inner.length:
        return None
    return replace(inner, start=inner.start + outer.start, length=outer.length)


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
