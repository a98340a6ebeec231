"""A block that stores one value per point, on buffers that are seen as flat arrays.

On flat arrays it shows which axes of a block are one axis in memory: the additions of a batch of
images are a single loop, those of a bias per channel are two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range, TensorLoad

from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.nodes import substitute


@dataclass(frozen=True)
class Pointwise:
    """``target[index] = value`` at every point of the axes; the last axis is contiguous in memory.

    Attributes
    ----------
    axes : tuple of Axis
        Outermost first, in the order of the target's memory.
    target : tirx.Var
        The flat buffer that is written.
    index, value : PrimExpr
        On flat buffers.
    """

    axes: tuple[Axis, ...]
    target: tirx.Var
    index: Any
    value: Any

    def accesses(self) -> list[Any]:
        """The flat index of the store and of every load."""
        return [self.index, *(load.indices[0] for load in loads(self.value))]

    def substituted(self, values: dict[Any, Any]) -> tuple[Any, Any]:
        """The index and the value with other expressions in place of variables."""
        return substitute(self.index, values), substitute(self.value, values)


class FlatViews:
    """Flat buffers on the parameters of a PrimFunc.

    Parameters
    ----------
    params : sequence of tirx.Var
        Buffers.
    """

    def __init__(self, params: Sequence[Any]) -> None:
        self._views = {param: _flat(param) for param in params if _is_plain(param)}

    def __contains__(self, buffer: Any) -> bool:
        return buffer in self._views

    def of(self, buffer: Any) -> Any:
        """The view of a buffer that has one."""
        return self._views[buffer]

    def declarations(self) -> list[Any]:
        """The statements that put the views onto their buffers."""
        return [tirx.DeclBuffer(flat, data=buffer.data) for buffer, flat in self._views.items()]

    def on_flat(self, expression: Any) -> Any:
        """An expression with its loads from flat buffers."""

        def load(node: Any) -> Any:
            return tirx.BufferLoad(self.of(node.source), [flat_index(node.source, node.indices)])

        return tvm_ffi.structural_map(expression, (TensorLoad, load))


def pointwise_store(axes: tuple[Axis, ...], store: Any, views: FlatViews) -> Pointwise | None:
    """What a statement stores at every point of axes, ``None`` when that is not one value.

    Neither is a statement that reads what it writes at other points, or one that writes nothing.
    """
    if not isinstance(store, tirx.BufferStore):
        return None
    read = [load.source for load in loads(store.value)]
    if store.buffer in read or not all(buffer in views for buffer in [store.buffer, *read]):
        return None
    if not all(axis.extent for axis in axes) or len({axis.dtype for axis in axes}) > 1:
        return None
    index = flat_index(store.buffer, store.indices)
    found = Pointwise(axes, views.of(store.buffer), index, views.on_flat(store.value))
    return _in_memory_order(simplified(_without_single_points(found)))


def simplified(block: Pointwise) -> Pointwise:
    """The same block, its expressions simplified for what its axes may be."""
    analyzer = sym.Analyzer()
    for axis in block.axes:
        analyzer.bind(axis.var, Range.from_min_extent(0, axis.extent))
    value = analyzer.simplify(block.value)
    return Pointwise(block.axes, block.target, analyzer.simplify(block.index), value)


def coefficients(index: Any, axes: list[Any]) -> list[int] | None:
    """The step of an index along each variable, ``None`` where it is not linear in them."""
    found = list(sym.detect_linear_equation(index, axes))[: len(axes)]
    steps = [int(step) for step in found if isinstance(step, tirx.IntImm)]
    return steps if len(steps) == len(axes) else None


def steps_and_start(index: Any, axes: list[Any]) -> tuple[list[int], int] | None:
    """The steps of an index that is linear in variables, and where it is if all of them are 0."""
    steps, origin = coefficients(index, axes), dict.fromkeys(axes, tirx.const(0, index.ty))
    start = sym.Analyzer().simplify(substitute(index, origin))
    if steps is None or not isinstance(start, tirx.IntImm):
        return None
    return steps, int(start)


def merged(block: Pointwise) -> Pointwise:
    """Neighbouring axes become one where every access walks them as one."""
    axes = list(block.axes)
    place = len(axes) - 2
    while place >= 0:
        one = _merge(block, axes[place], axes[place + 1])
        if one is not None:
            axes[place : place + 2] = [one.axes[-1]]
            block = Pointwise(tuple(axes), one.target, one.index, one.value)
        place -= 1
    return block


def with_last_axis_cut(block: Pointwise, length: int, place: int) -> Pointwise:
    """The last axis in parts of ``length``, which divides it; the loop over them at ``place``."""
    *outer, last = block.axes
    part = Axis(tirx.Var("part", last.var.ty), last.extent // length)
    inside = Axis(tirx.Var(last.var.name, last.var.ty), length)
    index, value = block.substituted({last.var: part.var * length + inside.var})
    axes = (*outer[:place], part, *outer[place:], inside)
    return Pointwise(axes, block.target, index, value)


def _merge(block: Pointwise, outer: Axis, inner: Axis) -> Pointwise | None:
    """The block with two axes as one (its last axis), ``None`` if they are two in memory."""
    pair = [outer.var, inner.var]
    steps = [coefficients(index, pair) for index in block.accesses()]
    if any(step is None or step[0] != step[1] * inner.extent for step in steps):
        return None
    if variables(_without_loads(block.value)) & set(pair):
        return None
    var = tirx.Var(inner.var.name, inner.var.ty)
    zero = tirx.const(0, str(var.ty))
    index, value = block.substituted({outer.var: zero, inner.var: var})
    return Pointwise((Axis(var, outer.extent * inner.extent),), block.target, index, value)


def _without_single_points(block: Pointwise) -> Pointwise:
    zeros = {a.var: tirx.const(0, a.dtype) for a in block.axes if a.extent == 1}
    index, value = block.substituted(zeros)
    return Pointwise(tuple(a for a in block.axes if a.extent > 1), block.target, index, value)


def _in_memory_order(block: Pointwise) -> Pointwise | None:
    steps = coefficients(block.index, [axis.var for axis in block.axes])
    if steps is None:
        return None
    order = sorted(zip(steps, block.axes, strict=True), key=lambda pair: -pair[0])
    if order and order[-1][0] != 1:
        return None
    return Pointwise(tuple(a for _, a in order), block.target, block.index, block.value)


def _without_loads(expression: Any) -> Any:
    """An expression with nothing in place of its loads: what the loads' values are used for."""
    return tvm_ffi.structural_map(
        expression, (TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype)))
    )


def flat_index(buffer: Any, indices: Sequence[Any]) -> Any:
    """Where an element of a buffer lies in memory, in elements."""
    index = indices[0] if len(indices) else tirx.const(0, "int64")
    if len(buffer.strides):
        pairs = zip(indices, buffer.strides, strict=True)
        return sum((position * int(step) for position, step in pairs), tirx.const(0, index.ty))
    for extent, position in zip(list(buffer.shape)[1:], list(indices)[1:], strict=True):
        index = index * int(extent) + position
    return index


def _flat(buffer: Any) -> Any:
    shape, strides = ([int(n) for n in numbers] for numbers in (buffer.shape, buffer.strides))
    size = prod(shape)
    if strides and size:
        size = 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    return tirx.decl_buffer(
        (tirx.IntImm("int64", size),), str(buffer.dtype), name=f"{buffer.name}_flat"
    )


def _is_plain(buffer: Any) -> bool:
    """Whether a parameter is an array that begins where its data does."""
    if not isinstance(buffer.ty, tirx.BufferType):
        return False
    offset, numbers = buffer.elem_offset, [*buffer.shape, *buffer.strides]
    return all(isinstance(x, tirx.IntImm) for x in [offset, *numbers]) and int(offset) == 0
