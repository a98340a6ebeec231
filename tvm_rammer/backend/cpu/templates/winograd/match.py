"""Which PrimFuncs are plain convolutions, and what they do before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad

from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.kernel.blocks import (
    all_are_int64,
    is_choice,
    loads,
    multiply_accumulate,
    only_reduction,
    parameter_number,
    spatial_axes,
    split_loops,
)
from tvm_rammer.kernel.nodes import collect, substitute

#: Conditions of these alone hold in a box.
_LINEAR = (tirx.And, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.Add, tirx.Sub, tirx.Var, tirx.IntImm)


@dataclass(frozen=True)
class Definition:
    """``target[indices] = value`` for all values of ``axes``: what one block computes.

    ``extents`` are those of the axes.
    """

    axes: tuple[Any, ...]
    store: Any
    extents: tuple[int, ...]

    def value(self, place: Sequence[Any]) -> Any:
        """The value at a place."""
        return _at(self.store.value, self.axes, place)


@dataclass(frozen=True)
class PlainConvolution:
    """A convolution ``[batch, height, width, out_channels]`` and all that is fused with it.

    Attributes
    ----------
    data : Var
        The buffer that is convolved: a parameter, or what ``prologue`` defines.
    prologue : Definition, optional
        Computes ``data`` from parameters, e.g. by padding.
    result : Var
        The buffer of the convolution's results: a parameter if there is no ``epilogue``.
    epilogue : Definition, optional
        Computes the function's result from ``result``.
    weight_position : int
        Which parameter the weights ``[out, *taps, in]`` are.
    taps, strides : (int, int)
        Along height and width.
    channels : Channels
    params : tuple of Var
    """

    data: Any
    prologue: Definition | None
    result: Any
    epilogue: Definition | None
    weight_position: int
    taps: tuple[int, int]
    strides: tuple[int, int]
    channels: Channels
    params: tuple[Any, ...]

    @property
    def output_extents(self) -> tuple[int, int, int]:
        """Batch, height and width of the results, without those that a slice leaves out."""
        shape = self.epilogue.extents if self.epilogue else map(int, self.result.shape)
        batch, height, width, _ = shape
        return batch, height, width

    def read(self, place: Sequence[Any]) -> Any:
        """The element of the data at a place that it has."""
        return self.prologue.value(place) if self.prologue else self.data[tuple(place)]

    def padding(self) -> Any | None:
        """The call ``if_then_else(inside, element, padding)`` that pads the data, if that is all.

        The places where the condition holds are convex, so that the corners of a tile tell.
        """
        value: Any = self.prologue.store.value if self.prologue else None
        return value if is_choice(value) and _is_linear(value.args[0]) else None

    def write(self, place: Sequence[Any], value: Any) -> Any:
        """The statement that puts a result, after the epilogue, into its place."""
        if self.epilogue is None:
            return tirx.BufferStore(self.result, value, list(place))
        store = self.epilogue.store
        result = self.result

        def replace(load: Any) -> Any:
            return value if load.source.same_as(result) else load

        computed = tvm_ffi.structural_map(self.epilogue.value(place), (TensorLoad, replace))
        indices = [_at(index, self.epilogue.axes, place) for index in store.indices]
        return tirx.BufferStore(store.buffer, computed, indices)


@lru_cache(maxsize=1)
def match_convolution(func: tirx.PrimFunc, constants: frozenset[int]) -> PlainConvolution | None:
    """The convolution that a PrimFunc is, ``None`` if it is something else.

    All blocks before and after it are inlined into one each. Two rules ask for it one after the
    other.
    """
    found = only_reduction(func)
    if found is None:
        return None
    sch, blocks, number = found
    conv = blocks[number]
    factors = multiply_accumulate(sch, conv)
    spatial, reduced = split_loops(sch, conv)
    if factors is None or len(spatial) != 4 or len(reduced) != 3:
        return None
    data, weight = factors
    position = parameter_number(sch.mod["main"], weight.source)
    result = sch.get(conv).body.buffer
    if position not in constants or position is None:
        return None
    strides = _strides(sch, conv, data, weight)
    channels = _channels(sch, conv, data, weight) if strides else None
    if strides is None or channels is None:
        return None
    taps = (int(weight.source.shape[1]), int(weight.source.shape[2]))
    for block in [*blocks[: max(0, number - 1)], *blocks[number + 1 : -1]]:
        sch.compute_inline(block)
    prologue = _definition(sch, blocks[number - 1]) if number else None
    epilogue = _definition(sch, blocks[-1]) if number + 1 < len(blocks) else None
    if prologue and not (_defines(prologue, data.source) and all_are_int64(prologue.axes)):
        return None
    if epilogue and not _reads_in_place(epilogue, result):
        return None
    if epilogue and _are_integers(epilogue, result):
        return None
    if epilogue and epilogue.extents[-1] != channels.outputs:
        return None
    params = tuple(sch.mod["main"].params)
    return PlainConvolution(
        data.source, prologue, result, epilogue, position, taps, strides, channels, params
    )


def _strides(sch: s_tir.Schedule, conv: Any, data: Any, weight: Any) -> tuple[int, int] | None:
    """The strides of a convolution in float32 with channels last and no dilation."""
    batch, y, x, channel = spatial_axes(sch, conv)
    ky, kx, inner = (axis.var for axis in sch.get(conv).iter_vars[4:])
    store = sch.get(conv).body
    buffers = (data.source, weight.source, store.buffer)
    plain = (
        len(data.indices) == len(weight.indices) == 4
        and all(str(buffer.dtype) == "float32" for buffer in buffers)
        and _same(store.indices, (batch, y, x, channel))
        and _same(weight.indices, (channel, ky, kx, inner))
        and bool(data.indices[0].same_as(batch))
    )
    if not plain:
        return None
    down, across = _stride(data.indices[1], y, ky), _stride(data.indices[2], x, kx)
    return (down, across) if down and across else None


def _channels(sch: s_tir.Schedule, conv: Any, data: Any, weight: Any) -> Channels | None:
    """The channels, where all outputs of a group read the inputs of their group."""
    output, number = spatial_axes(sch, conv)[-1], sch.get(conv).iter_vars[-1].var
    inputs, depth = int(data.source.shape[3]), int(weight.source.shape[3])
    outputs = int(weight.source.shape[0])
    groups, rest = divmod(inputs, depth) if depth else (0, 0)
    if not groups or rest or outputs % groups:
        return None
    channels = Channels(inputs, outputs, groups)
    read = channels.input(output, number)
    return channels if sym.Analyzer().can_prove_equal(data.indices[3], read) else None


def _definition(sch: s_tir.Schedule, block: Any) -> Definition:
    found = sch.get(block)
    axes, extents = zip(
        *((axis.var, int(axis.dom.extent)) for axis in found.iter_vars), strict=True
    )
    return Definition(axes, found.body, extents)


def _defines(definition: Definition, buffer: Any) -> bool:
    store = definition.store
    return (
        isinstance(store, tirx.BufferStore)
        and bool(store.buffer.same_as(buffer))
        and _same(store.indices, definition.axes)
    )


def _reads_in_place(definition: Definition, buffer: Any) -> bool:
    """Whether a block reads ``buffer`` only at its own axes."""
    store = definition.store
    if not isinstance(store, tirx.BufferStore):
        return False
    own = [load for load in loads(store.value) if load.source.same_as(buffer)]
    return bool(own) and all(_same(load.indices, definition.axes) for load in own)


def _are_integers(definition: Definition, buffer: Any) -> bool:
    """Whether a block takes integers from a buffer of floats: those of a direct sum are exact."""
    casts = collect(definition.store.value, tirx.Cast)
    return any(
        str(cast.ty.dtype).startswith("int")
        and isinstance(cast.value, TensorLoad)
        and cast.value.source.same_as(buffer)
        for cast in casts
    )


def _at(expression: Any, axes: Sequence[Any], place: Sequence[Any]) -> Any:
    return substitute(expression, dict(zip(axes, place, strict=True)))


def _is_linear(condition: Any) -> bool:
    return all(isinstance(node, _LINEAR) for node in collect(condition, tvm.ir.Expr))


def _stride(index: Any, place: Any, tap: Any) -> int | None:
    """``n`` if the index is ``place * n + tap``."""
    if not isinstance(index, tirx.Add):
        return None
    first, last = (index.b, index.a) if index.a.same_as(tap) else (index.a, index.b)
    if not last.same_as(tap):
        return None
    if first.same_as(place):
        return 1
    scaled = isinstance(first, tirx.Mul) and first.a.same_as(place)
    return int(first.b) if scaled and isinstance(first.b, tirx.IntImm) else None


def _same(expressions: Sequence[Any], variables: Sequence[Any]) -> bool:
    return len(expressions) == len(variables) and all(
        bool(a.same_as(b)) for a, b in zip(expressions, variables, strict=True)
    )
