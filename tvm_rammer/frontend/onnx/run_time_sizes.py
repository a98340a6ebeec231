"""Sizes that are data at run time: shapes as tensors, tensors as shapes, a symbol for each size.

TVM's importer keeps shapes apart from tensors. What it does not know about one it leaves out of the
types, or takes for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import numpy as np
import onnx
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from tvm_rammer.frontend.onnx.infer import known_sizes

#: Operands that may be shapes instead of tensors; a shape that is known by its symbols says more.
_TAKES_SHAPES: dict[str, set[int]] = {
    "ConstantOfShape": {0},
    "Expand": {1},
    "Gather": {0},
    "Identity": {0},
    "Range": {0, 1, 2},
    "Reshape": {1},
    "Resize": {3},
    "Slice": {0},
}
#: Operators on elements at the same place of several operands.
_ELEMENTWISE = {
    "Add",
    "And",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "PRelu",
    "Pow",
    "Sub",
    "Sum",
    "Where",
    "Xor",
}
#: Operands that are shapes: tensors of what is known at run time become such.
_WANTS_SHAPES = {("ConstantOfShape", 0)}

_CONCAT, _SHAPE_TO_TENSOR = map(tvm.ir.Op.get, ("relax.concat", "relax.shape_to_tensor"))


def is_shape(value: Any) -> bool:
    """Whether a value is a shape, or one size of a shape, and no tensor."""
    if tvm.ir.is_prim_expr(value):
        return True
    return isinstance(value, relax.Expr) and isinstance(value.ty, relax.ShapeType)


def as_tensor(bb: relax.BlockBuilder, value: Any) -> relax.Expr:
    """A shape as a tensor of int64; a size as one without dimensions."""
    if not is_shape(value):
        return value
    if not tvm.ir.is_prim_expr(value):
        return bb.emit(relax.op.shape_to_tensor(value))
    whole = bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr([tirx.Cast("int64", value)])))
    return bb.emit(relax.op.reshape(whole, ()))


def as_shape(bb: relax.BlockBuilder, value: Any) -> relax.Expr:
    """A vector of int64 as a shape, with a symbol for each size."""
    if isinstance(value, relax.ShapeExpr):
        return value
    if isinstance(value, tvm.ir.GenericConst):
        return relax.ShapeExpr(value.value.numpy().tolist())
    (count,) = value.ty.shape.values
    symbols = [tirx.Var(f"size_{number}", "int64") for number in range(int(count))]
    bb.match_cast(bb.emit(relax.op.tensor_to_shape(value)), relax.ShapeType(symbols))
    known = _known_sizes(bb, value, int(count))
    return relax.ShapeExpr(
        [new if size is None else size for new, size in zip(symbols, known, strict=True)]
    )


def _known_sizes(bb: relax.BlockBuilder, value: Any, count: int) -> list[Any]:
    """What is known of the elements of a vector that shapes and constants are joined to."""
    if isinstance(value, tvm.ir.GenericConst):
        return list(map(int, value.value.numpy().tolist()))
    found = bb.lookup_binding(value) if isinstance(value, relax.Var) else None
    if not isinstance(found, tvm.ir.Call):
        return [None] * count
    if found.op == _SHAPE_TO_TENSOR and isinstance(found.args[0], relax.ShapeExpr):
        return list(found.args[0].values)
    if found.op != _CONCAT or not isinstance(found.args[0], relax.Tuple):
        return [None] * count
    parts = list(found.args[0].fields)
    lengths = [part.ty.shape.values[0] for part in parts]
    return [
        size
        for part, length in zip(parts, lengths, strict=True)
        for size in _known_sizes(bb, part, int(length))
    ]


def sized(bb: relax.BlockBuilder, value: Any, kind: onnx.TypeProto | None) -> Any:
    """A tensor whose sizes are known, or are symbols; ``kind`` is what ONNX knows of it."""
    if not isinstance(value, relax.Expr) or not isinstance(value.ty, relax.TensorType):
        return value
    shape, rank = value.ty.shape, value.ty.ndim
    if rank < 0 or _is_static(shape):
        return value
    found = list(shape.values) if isinstance(shape, relax.ShapeExpr) else [None] * rank
    told = (known_sizes(kind) if kind is not None else []) or [None] * rank
    sizes = [
        own if known is None or isinstance(own, tirx.IntImm) else known
        for own, known in zip(found, told, strict=True)
    ]
    if isinstance(shape, relax.ShapeExpr) and all(map(is_, found, sizes)):
        return value
    named = [
        tirx.Var(f"size_{axis}", "int64") if size is None else size
        for axis, size in enumerate(sizes)
    ]
    return bb.match_cast(value, relax.TensorType(named, value.ty.dtype))


def _is_static(shape: relax.Expr | None) -> bool:
    """Whether all sizes of a shape are known before the run."""
    if not isinstance(shape, relax.ShapeExpr):
        return False
    return all(isinstance(size, tirx.IntImm) for size in shape.values)


def operands(bb: relax.BlockBuilder, operator: str, values: list[Any]) -> list[Any]:
    """The operands of a node: shapes where the operator's converter takes them."""
    if operator in _ELEMENTWISE:
        return _of_one_shape(bb, [as_tensor(bb, value) for value in values])
    if operator == "Concat" and all(map(_is_shape_like, values)):
        return values
    takes = _TAKES_SHAPES.get(operator, set())
    if operator in ("Gather", "Slice") and not all(
        value is None or isinstance(value, tvm.ir.GenericConst) for value in values[1:]
    ):
        takes = set()
    found = []
    for number, value in enumerate(values):
        if (operator, number) in _WANTS_SHAPES:
            value = as_shape(bb, value)
        found.append(value if number in takes else as_tensor(bb, value))
    return found


def broadcast(bb: relax.BlockBuilder, shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The shape of what is computed from tensors of some shapes; a size of 1 is repeated.

    Where only the run can tell, it ends at sizes that do not match.
    """
    rank = max(map(len, shapes))
    wide = [[tirx.IntImm("int64", 1)] * (rank - len(shape)) + list(shape) for shape in shapes]
    known = [_common(sizes) for sizes in zip(*wide, strict=True)]
    if any(size is None for size in known):
        found = as_shape(bb, _largest(bb, wide)).values
        known = [new if size is None else size for size, new in zip(known, found, strict=True)]
    for shape in wide:
        if not _fits(shape, known):
            _match(bb, shape, known)
    return known


def _largest(bb: relax.BlockBuilder, shapes: Sequence[Sequence[Any]]) -> relax.Expr:
    """The first size that is not 1 of every axis."""
    first, *others = (bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(each))) for each in shapes)
    for other in others:
        first = bb.emit(relax.op.where(relax.op.equal(first, _one()), other, first))
    return bb.match_cast(first, relax.TensorType([len(shapes[0])], "int64"))


def _match(bb: relax.BlockBuilder, shape: Sequence[Any], sizes: Sequence[Any]) -> None:
    """End the run where a size of a shape is neither 1 nor that of the result."""
    own, wanted = (relax.op.shape_to_tensor(relax.ShapeExpr(each)) for each in (shape, sizes))
    own = bb.emit(own)
    grown = bb.emit(relax.op.where(relax.op.equal(own, _one()), wanted, own))
    grown = bb.match_cast(grown, relax.TensorType([len(sizes)], "int64"))
    bb.match_cast(bb.emit(relax.op.tensor_to_shape(grown)), relax.ShapeType(sizes))


def _one() -> relax.Expr:
    return relax.const(np.array(1, np.int64), "int64")


def _common(sizes: Sequence[Any]) -> Any:
    """What sizes become, if that is known before the run."""
    larger = [size for size in sizes if not _is_one(size)]
    larger = [size for size in larger if not any(_is_cut(size, other) for other in larger)]
    if not larger or all(tvm_ffi.structural_equal(larger[0], size) for size in larger):
        return (larger or sizes)[0]
    # What is not 1 is the same.
    return next((size for size in larger if isinstance(size, tirx.IntImm)), None)


def _is_cut(size: Any, other: Any) -> bool:
    """Whether a size is another one or less, and 1 only where that is."""
    return isinstance(size, tirx.Min) and any(
        tvm_ffi.structural_equal(part, other) and isinstance(limit, tirx.IntImm) and int(limit) > 1
        for part, limit in ((size.a, size.b), (size.b, size.a))
    )


def _is_one(size: Any) -> bool:
    return isinstance(size, tirx.IntImm) and int(size) == 1


def expanded(bb: relax.BlockBuilder, value: relax.Expr, sizes: Sequence[Any]) -> relax.Expr:
    """A tensor with what is of size 1, as may be seen only at run time, repeated."""
    value = _uncut(bb, value, sizes)
    if _has_shape(value, sizes):
        return value
    if _fits(list(value.ty.shape.values), sizes):
        return bb.emit(relax.op.broadcast_to(value, relax.ShapeExpr(list(sizes))))

    def expand(tensor: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        def element(*places: tirx.Var) -> Any:
            own = places[len(places) - len(tensor.shape) :]
            pairs = zip(own, tensor.shape, strict=True)
            return tensor(*(tirx.Select(size == 1, tirx.const(0, p.ty), p) for p, size in pairs))

        return te.compute(sizes, element, "expanded")

    return bb.emit_te(expand, value, list(sizes))


def _of_one_shape(bb: relax.BlockBuilder, values: list[Any]) -> list[Any]:
    """Operands of an elementwise operator, of one shape where TVM could not tell that they are."""
    if any(value is None or not isinstance(value.ty, relax.TensorType) for value in values):
        return values
    shapes = [value.ty.shape for value in values]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return values
    sizes = broadcast(bb, [shape.values for shape in shapes])
    if all(_fits(shape.values, sizes) for shape in shapes):
        return values
    return [expanded(bb, value, sizes) for value in values]


def _has_shape(value: relax.Expr, sizes: Sequence[Any]) -> bool:
    own = list(value.ty.shape.values)
    return len(own) == len(sizes) and all(map(tvm_ffi.structural_equal, own, sizes))


def _uncut(bb: relax.BlockBuilder, value: relax.Expr, sizes: Sequence[Any]) -> relax.Expr:
    """A tensor whose sizes were cut to those of an axis, where the run ends if they were."""
    own = list(value.ty.shape.values)
    wanted = sizes[len(sizes) - len(own) :]
    cut = list(map(_is_cut, own, wanted))
    if not any(cut):
        return value
    whole = [size if is_cut else one for one, size, is_cut in zip(own, wanted, cut, strict=True)]
    return bb.emit(relax.op.reshape(value, relax.ShapeExpr(whole)))


def _fits(shape: Sequence[Any], sizes: Sequence[Any]) -> bool:
    pairs = zip(shape, sizes[len(sizes) - len(shape) :], strict=True)
    return all(_is_one(one) or tvm_ffi.structural_equal(one, other) for one, other in pairs)


def _is_shape_like(value: Any) -> bool:
    if isinstance(value, tvm.ir.GenericConst):
        return value.ty.ndim == 1 and value.ty.dtype == "int64"
    return isinstance(value, relax.ShapeExpr)
