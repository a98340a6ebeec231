"""Operators with two neighbouring open axes as operators with one: batches and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from tvm_rammer.kernel.blocks import is_reduced, variables
from tvm_rammer.kernel.loop_nests import (
    LoopNest,
    NotInBlocksError,
    func_of,
    nests_of,
    tensors_of,
)
from tvm_rammer.kernel.nodes import substitute


@dataclass(frozen=True)
class MergedAxes:
    """An operator that takes the same tensors with one axis in the place of two.

    Attributes
    ----------
    func : tirx.PrimFunc
    axes : tuple of int or None
        Of its parameters, the first of the two; those without them have none.
    """

    func: tirx.PrimFunc
    axes: tuple[int | None, ...]


def merged_axes(func: tirx.PrimFunc) -> MergedAxes | None:
    """The operator with one open axis; ``None`` if it has no two, or they are not one."""
    result = tensors_of(func)[-1]
    sizes = [size for size in result.shape if not isinstance(size, tirx.IntImm)]
    if len(sizes) != 2 or not all(isinstance(size, tirx.Var) for size in sizes):
        return None
    if sizes[0].same_as(sizes[1]):
        return None
    try:
        return _Merger(func, *sizes).made()
    except NotInBlocksError:
        return None


def _without_single(nest: LoopNest) -> LoopNest:
    """A nest without loops that run once, as the windows of a pointwise convolution have them."""
    single = [
        var
        for var in nest.block.iter_vars
        if isinstance(var.dom.extent, tirx.IntImm) and int(var.dom.extent) == 1
    ]
    once = {var.var: tirx.IntImm(var.var.ty.dtype, 0) for var in single if is_reduced(var)}
    if not once or not any(is_reduced(v) and v.var not in once for v in nest.block.iter_vars):
        return nest
    kept = [var for var in nest.block.iter_vars if var.var not in once]
    block = s_tir.SBlock(kept, [], [], nest.block.name_hint, nest.block.body)
    stores = (each and _simplified(substitute(each, once)) for each in (nest.update, nest.init))
    return LoopNest(block, *stores)


def _simplified(store: Any) -> Any:
    """A store whose indices, and those of what it reads, are in their simplest form."""
    analyzer = sym.Analyzer()

    def load(node: Any) -> Any:
        return tirx.BufferLoad(node.source, list(map(analyzer.simplify, node.indices)))

    value = tvm_ffi.structural_map(store.value, (ir.TensorLoad, load))
    return tirx.BufferStore(store.buffer, value, list(map(analyzer.simplify, store.indices)))


class _Merger:
    """Puts one axis in the place of two."""

    def __init__(self, func: tirx.PrimFunc, first: Any, second: Any) -> None:
        self.func, self.first, self.second = func, first, second
        self.size = tirx.Var("rows", "int64")
        self.buffers: dict[Any, Any] = {}

    def made(self) -> MergedAxes:
        """The operator."""
        func, params = self.func, tensors_of(self.func)
        allocated = list(func.body.block.alloc_buffers)
        axes = {each: self._axis(each) for each in (*params, *allocated)}
        self.buffers = {
            each: self._merged(each, axis) for each, axis in axes.items() if axis is not None
        }
        nests = [self._nest(nest, axes) for nest in map(_without_single, nests_of(func))]
        own = [self.buffers.get(each, each) for each in params]
        kept = [self.buffers.get(each, each) for each in allocated]
        merged = func_of(own, nests, kept, func.attrs)
        return MergedAxes(merged, tuple(axes[each] for each in params))

    def _axis(self, buffer: Any) -> int | None:
        """Where the two axes of a buffer are."""
        open_axes = [k for k, size in enumerate(buffer.shape) if not isinstance(size, tirx.IntImm)]
        if not open_axes:
            return None
        sizes = [buffer.shape[axis] for axis in open_axes]
        are_both = (
            len(sizes) == 2 and sizes[0].same_as(self.first) and sizes[1].same_as(self.second)
        )
        if not are_both or open_axes[1] != open_axes[0] + 1:
            raise NotInBlocksError
        return open_axes[0]

    def _merged(self, buffer: Any, axis: int) -> Any:
        shape = [*buffer.shape[:axis], self.size, *buffer.shape[axis + 2 :]]
        return tirx.decl_buffer(shape, str(buffer.dtype), buffer.name)

    def _nest(self, nest: LoopNest, axes: Mapping[Any, int | None]) -> LoopNest:
        """A nest with one loop over both axes."""
        axis = axes[nest.update.buffer]
        if axis is None:
            raise NotInBlocksError
        place, inner = nest.update.indices[axis], nest.update.indices[axis + 1]
        row = tirx.Var("row", "int64")
        kept: list[Any] = []
        for var in nest.block.iter_vars:
            if var.var.same_as(place):
                domain = ir.Range.from_min_extent(tirx.IntImm("int64", 0), self.size)
                kept.append(tirx.IterVar(domain, row, var.iter_type))
            elif not var.var.same_as(inner):
                kept.append(var)
        if len(kept) != len(nest.block.iter_vars) - 1:
            raise NotInBlocksError
        block = s_tir.SBlock(kept, [], [], nest.block.name_hint, nest.block.body)
        stores = (
            None if each is None else self._store(each, axes, (place, inner, row))
            for each in (nest.update, nest.init)
        )
        return LoopNest(block, *stores)

    def _store(self, store: Any, axes: Mapping[Any, int | None], places: Any) -> Any:
        place, inner, row = places

        def indices(buffer: Any, given: Any) -> list[Any] | None:
            axis, found = axes.get(buffer), list(given)
            if axis is None:
                return found
            if not (found[axis].same_as(place) and found[axis + 1].same_as(inner)):
                return None
            return [*found[:axis], row, *found[axis + 2 :]]

        def load(node: Any) -> Any:
            own = indices(node.source, node.indices)
            # What stays as it was is found below.
            source = self.buffers.get(node.source, node.source)
            return node if own is None else tirx.BufferLoad(source, own)

        value = tvm_ffi.structural_map(store.value, (ir.TensorLoad, load))
        own = indices(store.buffer, store.indices)
        made = tirx.BufferStore(self.buffers.get(store.buffer, store.buffer), value, own)
        if variables(made) & {place, inner, self.first, self.second}:
            # Where it is, or how many there are, decides something.
            raise NotInBlocksError
        return made
