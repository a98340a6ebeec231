"""A compiler pass that keeps indices that are data inside of the tensors that they index.

ONNX and PyTorch forbid other indices, but a compiled model checks no data: it would read or write
foreign memory. An index that is out of range stands for the nearest that is not. What is scattered
by fewer indices than the tensor has elements besides the axis goes where the indices are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from tvm_rammer.transform.relax_util import calls_any, operator_name, rewrite, static_shape


@tvm.transform.module_pass(opt_level=0, name="KeepIndicesInside")
class KeepIndicesInside:
    """Clip the indices of takes, gathers and scatters from tensors of static shapes.

    Negative indices count from the end where the operator says so; importers have added the extent
    for the others. Indices that are constants are clipped when constants are folded.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module; one that indexes nothing stays as it is."""
        return rewrite(mod, _Clipper(mod)) if calls_any(mod, _OPERATORS) else mod


@relax.expr_functor.mutator
class _Clipper(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        change = _OPERATORS.get(operator_name(call))
        return call if change is None else change(self.builder_, call)


def _take(_: relax.BlockBuilder, call: Any) -> Any:
    clips = str(call.attrs.mode) == "fast"
    return relax.op.take(*call.args, call.attrs.axis, "clip") if clips else call


def _gather_elements(builder: relax.BlockBuilder, call: Any) -> Any:
    shape = static_shape(call.args[0])
    return call if shape is None else _clipped(builder, call, [shape[int(call.attrs.axis)]])


def _scatter_elements(builder: relax.BlockBuilder, call: Any) -> Any:
    shape, reached = static_shape(call.args[0]), static_shape(call.args[1])
    if not shape or reached is None:
        return call
    axis = int(call.attrs.axis) % len(shape)
    call = _clipped(builder, call, [shape[axis]], from_the_end=True)
    return _scattered_into_part(builder, call, (*reached[:axis], shape[axis], *reached[axis + 1 :]))


def _scattered_into_part(builder: relax.BlockBuilder, call: Any, part: tuple[int, ...]) -> Any:
    """The scattering into the first elements of every axis, and the others as they are.

    TVM takes the place of an index among the indices for its place in the tensor, where they
    differ if the indices reach less far along an axis that is not the indexed one.
    """
    whole, shape = call.args[0], static_shape(call.args[0]) or ()
    if part == shape:
        return call
    if 0 in part:
        return whole
    axes, zeros = list(range(len(shape))), [0] * len(shape)
    first = builder.emit(relax.op.strided_slice(whole, axes, zeros, part))
    result = builder.emit(Call(call.op, [first, *call.args[1:]], call.attrs))
    for axis, (reached, size) in enumerate(zip(part, shape, strict=True)):
        if reached < size:
            begin = [reached if k == axis else 0 for k in axes]
            end = [*shape[: axis + 1], *part[axis + 1 :]]
            rest = builder.emit(relax.op.strided_slice(whole, axes, begin, end))
            result = builder.emit(relax.op.concat([result, rest], axis))
    return result


def _gather_nd(builder: relax.BlockBuilder, call: Any) -> Any:
    return _coordinates(builder, call, int(call.attrs.batch_dims))


def _scatter_nd(builder: relax.BlockBuilder, call: Any) -> Any:
    return _coordinates(builder, call, 0)


def _coordinates(builder: relax.BlockBuilder, call: Any, first: int) -> Any:
    """The last axis of the indices has one place for each axis from the first one on."""
    shape, places = static_shape(call.args[0]), static_shape(call.args[1])
    if shape is None or not places:
        return call
    return _clipped(builder, call, shape[first : first + places[-1]])


def _clipped(
    builder: relax.BlockBuilder, call: Any, extents: Sequence[int], from_the_end: bool = False
) -> Any:
    """A call whose indices are below the extents: of each place of the last axis, or of all."""
    indices = call.args[1]
    dtype = str(indices.ty.dtype)
    if not extents or 0 in extents or not dtype.startswith(("int", "uint")):
        return call
    most = int(np.iinfo(dtype).max)
    last = np.array([min(extent - 1, most) for extent in extents], dtype)
    least = -last - 1 if from_the_end and dtype.startswith("int") else 0 * last
    not_above = builder.emit(relax.op.minimum(indices, relax.const(last, dtype)))
    inside = builder.emit(relax.op.maximum(not_above, relax.const(least, dtype)))
    return builder.normalize(Call(call.op, [call.args[0], inside, *call.args[2:]], call.attrs))


_OPERATORS: dict[str, Callable[[relax.BlockBuilder, Any], Any]] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
}
