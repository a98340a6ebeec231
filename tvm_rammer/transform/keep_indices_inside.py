"""A compiler pass that keeps indices that are data inside of the tensors that they index.

ONNX and PyTorch forbid other indices, but a compiled model checks no data: it would read or write
foreign memory. An index that is out of range stands for the nearest that is not. Of a tensor that
the run finds empty zeros are read. And the place of the largest of elements that are all the least
of their type, as in a row of minus infinities, is the first, which TVM gives as -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.tirx import IntImm

from tvm_rammer.relax_util import calls_any, operator_name, rewrite, static_shape


@tvm.transform.module_pass(opt_level=0, name="KeepIndicesInside")
class KeepIndicesInside:
    """Clip the indices of takes, gathers and scatters, by sizes that may be known at run time.

    And those that argmax and argmin find.

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


def _take(builder: relax.BlockBuilder, call: Any) -> Any:
    data, indices = call.args
    if str(call.attrs.mode) not in ("fast", "clip") or not _rank(data):
        return call
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % _rank(data)
    shape = static_shape(data)
    if shape is not None and shape[axis] == 0:
        return _nothing_there(builder, call)
    if not _may_be_empty(data, axis, 1):
        return relax.op.take(data, indices, axis, "clip")
    if not all(map(_has_plain_sizes, (data, indices))):
        # TVM warns of the other mode, whatever the indices are.
        return _clipped(builder, relax.op.take(data, indices, axis, "clip"), axis, 1)
    return builder.call_te(_taken, data, indices, axis)


def _has_plain_sizes(tensor: Any) -> bool:
    """Whether every size is a number or a symbol."""
    shape = tensor.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return False
    return all(isinstance(size, IntImm | tirx.Var) for size in shape.values)


def _taken(x: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """Slices of a tensor at places that are inside of an axis, zeros where it has none."""
    rank, size = len(indices.shape), x.shape[axis].astype("int64")

    def element(*places: Any) -> Any:
        place = indices(*places[axis : axis + rank]).astype("int64")
        inside = tirx.max(tirx.min(place, size - 1), tirx.const(0, "int64"))
        read = x(*places[:axis], inside, *places[axis + rank :])
        return tirx.if_then_else(size > 0, read, tirx.const(0, str(x.dtype)))

    return te.compute([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]], element, "take")


def _gather_elements(builder: relax.BlockBuilder, call: Any) -> Any:
    axis = int(call.attrs.axis)
    return _clipped(builder, call, axis % _rank(call.args[0]), 1) if _rank(call.args[0]) else call


def _scatter_elements(builder: relax.BlockBuilder, call: Any) -> Any:
    if not _rank(call.args[0]):
        return call
    axis = int(call.attrs.axis) % _rank(call.args[0])
    return _clipped(builder, call, axis, 1, from_the_end=True)


def _gather_nd(builder: relax.BlockBuilder, call: Any) -> Any:
    return _coordinates(builder, call, int(call.attrs.batch_dims))


def _scatter_nd(builder: relax.BlockBuilder, call: Any) -> Any:
    return _coordinates(builder, call, 0)


def _slice(builder: relax.BlockBuilder, call: Any) -> Any:
    """Ends that are data lie on the side of the begins that the steps lead to, and no step is 0.

    TVM gives an axis the negative size that follows otherwise, and divides by the step.
    """
    data, begin, end, step = call.args
    rank = _rank(data)
    if not rank or str(begin.ty.dtype) != "int64":
        return call

    def compute(name: str, *arguments: Any) -> Any:
        return builder.emit(getattr(relax.op, name)(*arguments))

    zero, one = (relax.const(np.full(rank, value, "int64"), "int64") for value in (0, 1))
    size = compute("add", _last_places(builder, data, 0, rank, "int64"), one)
    step = compute("where", compute("equal", step, zero), one, step)
    back = compute("less", step, zero)
    least = compute("where", back, compute("negative", one), zero)
    most = compute("add", least, size)

    def inside(places: Any, least: Any) -> Any:
        from_front = compute(
            "where", compute("less", places, zero), compute("add", places, size), places
        )
        return compute("maximum", compute("minimum", from_front, most), least)

    def written(places: Any) -> Any:
        # The place before the first counts from the end, as the user would write it.
        before = compute("subtract", places, size)
        return compute("where", compute("less", places, zero), before, places)

    # Backwards, an axis is read from its first place at least; an empty one has none.
    first, last = inside(begin, compute("minimum", zero, most)), inside(end, least)
    behind = compute(
        "where", back, compute("minimum", first, last), compute("maximum", first, last)
    )
    arguments = [data, written(first), written(behind), step]
    return builder.normalize(Call(call.op, arguments, call.attrs))


def _place(builder: relax.BlockBuilder, call: Any) -> Any:
    zero = relax.const(0, str(call.ty.dtype))
    return builder.normalize(relax.op.maximum(builder.emit(call), zero))


def _coordinates(builder: relax.BlockBuilder, call: Any, first: int) -> Any:
    """The last axis of the indices has one place for each axis from the first one on."""
    if _rank(call.args[1]) < 1 or not isinstance(call.args[1].ty.shape, relax.ShapeExpr):
        return call
    count = call.args[1].ty.shape.values[-1]
    return _clipped(builder, call, first, int(count)) if isinstance(count, IntImm) else call


def _clipped(
    builder: relax.BlockBuilder, call: Any, first: int, count: int, from_the_end: bool = False
) -> Any:
    """A call whose indices lie inside of so many axes from the first one on.

    Each place of their last axis is for one of these axes, or all are for the only one.
    """
    data, indices = call.args[:2]
    shape, dtype = static_shape(data), str(indices.ty.dtype)
    if not count or not dtype.startswith(("int", "uint")):
        return call
    if shape is not None and 0 in shape[first : first + count]:
        return _nothing_there(builder, call)
    if _may_be_empty(data, first, count):
        return _with_room(builder, call, first, count, from_the_end)
    last = _last_places(builder, data, first, count, dtype)
    zero = relax.const(np.zeros(count, dtype), dtype)
    least = zero
    if from_the_end and dtype.startswith("int"):
        one = relax.const(np.ones(count, dtype), dtype)
        least = builder.emit(relax.op.subtract(builder.emit(relax.op.negative(last)), one))
    inside = _between(builder, indices, least, last)
    return builder.normalize(Call(call.op, [data, inside, *call.args[2:]], call.attrs))


def _between(builder: relax.BlockBuilder, indices: Any, least: Any, last: Any) -> Any:
    found = builder.emit(relax.op.maximum(builder.emit(relax.op.minimum(indices, last)), least))
    # Limits are vectors; one place that has no axis stays so.
    return found if indices.ty.ndim else builder.emit(relax.op.reshape(found, ()))


def _may_be_empty(data: Any, first: int, count: int) -> bool:
    """Whether any of some axes has a size that only the run knows."""
    if not isinstance(data.ty.shape, relax.ShapeExpr):
        return False
    return not all(isinstance(n, IntImm) for n in data.ty.shape.values[first : first + count])


def _with_room(
    builder: relax.BlockBuilder, call: Any, first: int, count: int, from_the_end: bool
) -> Any:
    """A call on a tensor with one more zero behind each of the axes, for they may be empty."""
    data, indices = call.args[:2]
    zero = relax.const(np.zeros(count, "int64"), "int64")
    last = _last_places(builder, data, first, count, "int64")
    indices = builder.emit(relax.op.astype(indices, "int64"))
    if from_the_end:
        size = builder.emit(relax.op.add(last, relax.const(1, "int64")))
        behind = builder.emit(relax.op.add(indices, size))
        indices = builder.emit(relax.op.where(relax.op.less(indices, zero), behind, indices))
    # The place of the first zero of an empty axis is 0.
    inside = _between(builder, indices, zero, builder.emit(relax.op.maximum(last, zero)))
    axes, own = range(first, first + count), data.ty.shape.values
    widths = [width for axis in range(len(own)) for width in (0, int(axis in axes))]
    wider = builder.emit(relax.op.nn.pad(data, widths))
    found = builder.emit(Call(call.op, [wider, inside, *call.args[2:]], call.attrs))
    if not operator_name(call).startswith("relax.scatter"):
        return found
    # TVM's slice would say the sizes in expressions that grow from one scatter to the next.
    return builder.call_te(_of_shape, found, list(own))


def _of_shape(x: te.Tensor, sizes: list[Any]) -> te.Tensor:
    """The first elements of every axis."""
    return te.compute(sizes, lambda *places: x(*places), "without_room")


def _last_places(
    builder: relax.BlockBuilder, data: Any, first: int, count: int, dtype: str
) -> relax.Expr:
    """The last index of every axis that the type of the indices can say."""
    most, shape = int(np.iinfo(dtype).max), static_shape(data)
    if shape is not None:
        extents = shape[first : first + count]
        return relax.const(np.array([min(n - 1, most) for n in extents], dtype), dtype)
    sizes = builder.emit(relax.op.shape_to_tensor(builder.emit(relax.op.shape_of(data))))
    some = builder.emit(relax.op.strided_slice(sizes, [0], [first], [first + count]))
    last = builder.emit(relax.op.subtract(some, relax.const(1, "int64")))
    said = builder.emit(relax.op.minimum(last, relax.const(most, "int64")))
    return builder.emit(relax.op.astype(said, dtype))


def _nothing_there(builder: relax.BlockBuilder, call: Any) -> Any:
    """What becomes of places in a tensor without any: zeros are gathered, nothing is scattered."""
    if operator_name(call).startswith("relax.scatter"):
        return call.args[0]
    return builder.normalize(relax.op.zeros(call.ty.shape, str(call.ty.dtype)))


def _rank(tensor: Any) -> int:
    """Axes of a tensor, 0 if that is not known."""
    return max(0, int(tensor.ty.ndim))


_OPERATORS: dict[str, Callable[[relax.BlockBuilder, Any], Any]] = {
    "relax.argmax": _place,
    "relax.argmin": _place,
    "relax.dynamic_strided_slice": _slice,
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
}
