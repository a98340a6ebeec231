"""Converters in place of those of TVM's importer whose results have another shape than they say.

And for operators that it has none for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype
from tvm import relax, te, tirx

from tvm_rammer.frontend.deformable_convolution import DeformableConvolution
from tvm_rammer.frontend.onnx import random_nodes, signals
from tvm_rammer.frontend.onnx.bit_cast import bit_cast
from tvm_rammer.frontend.onnx.col2im import col2im
from tvm_rammer.frontend.onnx.determinant import determinant
from tvm_rammer.frontend.onnx.linear_attention import linear_attention
from tvm_rammer.frontend.onnx.recurrent import open_steps
from tvm_rammer.frontend.onnx.run_time_resize import resize
from tvm_rammer.frontend.onnx.run_time_sizes import as_shape, broadcast, expanded, is_shape, sized
from tvm_rammer.frontend.onnx.split_sequence import split_to_sequence
from tvm_rammer.frontend.part_of_axis import part_of_axes
from tvm_rammer.frontend.rounding import rounded_to_bfloat16
from tvm_rammer.frontend.sizes import FAR
from tvm_rammer.frontend.suppression import LEAST, non_max_suppression

#: Makes an expression of a node's operands and attributes.
Converter = Callable[[relax.BlockBuilder, Sequence[Any], Mapping[str, Any]], relax.Expr | None]


#: Of a size that is data, as many parts are joined at once.
_PARTS = 4
#: Integers that have less than the longest ones' bits.
_INTEGERS = {
    getattr(TensorProto, name.upper()): name
    for name in ("int32", "int16", "int8", "uint32", "uint16", "uint8")
}


def _reshape(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """To a shape that is data: its 0 and -1 mean something."""
    data, wanted = inputs
    if isinstance(wanted, tvm.ir.GenericConst | relax.ShapeExpr):
        return None
    known = _sizes(bb, data)
    size, rank = int(wanted.ty.shape.values[0]), data.ty.ndim
    if not attributes.get("allowzero", 0):
        rest = relax.const(np.zeros(max(0, size - rank), np.int64), "int64")
        same = relax.op.strided_slice(relax.op.concat([known, rest]), [0], [0], [size])
        wanted = relax.op.where(relax.op.equal(wanted, _numbers(0)), same, wanted)
    left = relax.op.equal(bb.emit(wanted), _numbers(-1))
    others = relax.op.prod(relax.op.where(left, _numbers(1), wanted), keepdims=True)
    whole = relax.op.prod(known, keepdims=True)
    others = relax.op.maximum(others, _numbers(1))
    wanted = relax.op.where(left, relax.op.floor_divide(whole, others), wanted)
    return relax.op.reshape(data, as_shape(bb, bb.emit(wanted)))


def _expand(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """To a shape of which 1 leaves a size as it is, as a size of 1 is repeated."""
    data, wanted = inputs
    shape = as_shape(bb, wanted)
    if all(isinstance(size, tirx.IntImm) for size in (*data.ty.shape.values, *shape.values)):
        return None
    return expanded(bb, data, broadcast(bb, [data.ty.shape.values, shape.values]))


def _slice(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """From and to constant places of an axis whose size is data, which may be shorter."""
    data, *given = inputs
    if is_shape(data) or not all(
        each is None or isinstance(each, tvm.ir.GenericConst) for each in given
    ):
        return None
    starts, ends, axes, steps = (
        [] if each is None else each.value.numpy().tolist() for each in (*given, None, None)[:4]
    )
    sizes = data.ty.shape.values
    axes = [axis % len(sizes) for axis in axes or range(len(starts))]
    if all(isinstance(sizes[axis], tirx.IntImm) for axis in axes):
        return None
    steps = steps or [1] * len(starts)
    parts = as_shape(bb, _parts(bb, data, axes, starts, ends, steps)).values

    count = len(axes)
    return bb.emit_te(part_of_axes, data, axes, list(parts[:count]), list(parts[count:]), steps)


def _parts(
    bb: relax.BlockBuilder,
    data: relax.Expr,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int],
) -> relax.Expr:
    """Where the slices of some axes begin, then how many elements each has."""
    own = relax.op.take(_sizes(bb, data), _numbers(axes), axis=0)
    step, back = np.array(steps), np.array(steps) < 0
    most = relax.op.subtract(own, _numbers(back))

    def inside(places: Sequence[int], least: relax.Expr) -> relax.Expr:
        near = np.clip(places, -FAR, FAR)
        place = relax.op.add(relax.op.multiply(own, _numbers(near < 0)), _numbers(near))
        return relax.op.maximum(relax.op.minimum(place, most), least)

    # Backwards, an axis is read from its first place at least; an empty one has none.
    first = inside(starts, relax.op.minimum(_numbers(0), most))
    last = inside(ends, _numbers(-back.astype(int)))
    span = relax.op.multiply(relax.op.subtract(last, first), _numbers(np.sign(step)))
    count = relax.op.floor_divide(relax.op.add(span, _numbers(abs(step) - 1)), _numbers(abs(step)))
    both = relax.op.concat([first, count])
    return bb.emit(relax.op.maximum(both, _numbers(0)))


def _top_k(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """As many as data say, and no more than there are: the first of all, in order."""
    data, count = inputs
    if isinstance(count, tvm.ir.GenericConst | relax.ShapeExpr):
        return None
    axis = attributes.get("axis", -1) % data.ty.ndim
    size = relax.op.strided_slice(_sizes(bb, data), [0], [axis], [axis + 1])
    (first,) = as_shape(bb, bb.emit(relax.op.minimum(relax.op.reshape(count, [1]), size))).values
    largest = bool(attributes.get("largest", 1))
    found = bb.emit(relax.op.topk(data, -1, axis, "both", largest, "int64"))

    def take(tensor: te.Tensor) -> te.Tensor:
        sizes = [*tensor.shape[:axis], first, *tensor.shape[axis + 1 :]]
        return te.compute(sizes, lambda *places: tensor(*places), "first")

    parts = [bb.emit(relax.TupleGetItem(found, number)) for number in (0, 1)]
    return relax.Tuple([bb.emit_te(take, part) for part in parts])


def _sizes(bb: relax.BlockBuilder, data: relax.Expr) -> relax.Expr:
    """The shape of a tensor as data."""
    return bb.emit(relax.op.shape_to_tensor(relax.op.shape_of(data)))


def _numbers(values: Any) -> relax.Expr:
    return relax.const(np.asarray(values, np.int64), "int64")


def _cast(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """To bfloat16 by rounding, from floats to short integers modulo their range.

    TVM's converter writes the remainder as a chain of operators that mention each other several
    times: inlined, what the cast is of is computed nine times, and takes seconds to compile.
    """
    data, target = inputs[0], attributes["to"]
    if is_shape(data) or isinstance(data, tvm.ir.GenericConst):
        return None
    if str(data.ty.dtype) == tensor_dtype_to_np_dtype(target).name:
        return data
    if target == TensorProto.BFLOAT16:
        return rounded_to_bfloat16(bb.emit_te, bb.emit(relax.op.astype(data, "float32")))
    dtype = _INTEGERS.get(target)
    if dtype is None or str(data.ty.dtype) not in ("float16", "float32", "float64"):
        return None
    return bb.emit_te(_modulo_range, data, dtype)


def _modulo_range(tensor: te.Tensor, dtype: str) -> te.Tensor:
    """What is finite towards zero, then its lowest bits; 0 for what is not."""
    wide = "int64" if dtype.endswith("32") else "int32"

    def element(*places: tirx.Var) -> Any:
        value = tensor(*places)
        finite = tirx.Select(tirx.isfinite(value), value, tirx.const(0, value.ty.dtype))
        return finite.astype(wide).astype(dtype)

    return te.compute(tensor.shape, element, "cast")


def _squeeze(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """Axes whose size is data are of size 1, or the run ends there."""
    data, *given = inputs
    axes = attributes.get("axes")
    if given and isinstance(given[0], tvm.ir.GenericConst):
        axes = given[0].value.numpy().tolist()
    if is_shape(data):
        return None
    sizes = list(data.ty.shape.values)
    if axes is None:
        named = any(each is not None for each in given)
        if not named and not all(isinstance(size, tirx.IntImm) for size in sizes):
            raise ValueError("which sizes are 1 is known only at run time; name its axes")
        return None
    axes = [axis % len(sizes) for axis in axes]
    if all(isinstance(sizes[axis], tirx.IntImm) for axis in axes):
        return None
    for axis in axes:
        sizes[axis] = 1
    return relax.op.squeeze(bb.match_cast(data, relax.TensorType(sizes, data.ty.dtype)), axes)


def _concat(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """Sizes that are data are the same in all parts, but along the axis, or the run ends there."""
    if any(map(is_shape, inputs)):
        return None
    shapes = [list(each.ty.shape.values) for each in inputs]
    axis = int(attributes["axis"]) % len(shapes[0])
    sizes = [_known(each) for each in zip(*shapes, strict=True)]
    wanted = [[*sizes[:axis], own[axis], *sizes[axis + 1 :]] for own in shapes]
    fits = [all(map(_is_same, own, other)) for own, other in zip(shapes, wanted, strict=True)]
    is_short = len(inputs) <= _PARTS or all(isinstance(own[axis], tirx.IntImm) for own in shapes)
    if all(fits) and is_short:
        return None
    # Not as a cast, which TVM's passes drop with what it says.
    parts = [
        part if fit else bb.emit(relax.op.reshape(part, relax.ShapeExpr(shape)))
        for part, fit, shape in zip(inputs, fits, wanted, strict=True)
    ]
    return relax.op.concat(parts, axis) if is_short else _joined(bb, parts, axis)


def _joined(bb: relax.BlockBuilder, parts: Sequence[Any], axis: int) -> relax.Expr:
    """Many parts whose sizes are data, some at a time.

    Where an element comes from takes a comparison with each end of a part, a sum of all sizes
    before it: a detector's ninety classes at once take half a minute to compile.
    """
    while len(parts) > 1:
        some = [parts[first : first + _PARTS] for first in range(0, len(parts), _PARTS)]
        joined = (bb.emit(relax.op.concat(each, axis)) for each in some)
        parts = [sized(bb, each, None) for each in joined]
    return parts[0]


def _concat_from_sequence(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """As a concatenation of the sequence's tensors, along an axis that they have."""
    (sequence,) = inputs
    is_joined = isinstance(sequence, relax.Tuple) and len(sequence.fields) > 0
    if attributes.get("new_axis", 0) or not is_joined:
        return None
    return _concat(bb, list(sequence.fields), attributes)


def _known(sizes: Sequence[Any]) -> Any:
    """One of some sizes that are equal: a number if there is one."""
    return next((size for size in sizes if isinstance(size, tirx.IntImm)), sizes[0])


def _is_same(size: Any, other: Any) -> bool:
    """Whether two sizes are one symbol, or numbers: those are not compared here."""
    return size is other or size.same_as(other) or isinstance(size, tirx.IntImm)


def _scatter_elements(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """As many updates as indices, where sizes are data, or the run ends there."""
    if any(map(is_shape, inputs)):
        return None
    data, indices, updates = inputs
    given = _shaped(bb, updates, indices.ty.shape.values)
    if given is None:
        return None
    axis = int(attributes.get("axis", 0)) % data.ty.ndim
    return relax.op.scatter_elements(data, indices, given, axis, _reduction(attributes))


def _scatter_nd(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """As many updates as places, where sizes are data, or the run ends there."""
    if any(map(is_shape, inputs)):
        return None
    data, indices, updates = inputs
    *places, depth = indices.ty.shape.values
    if not isinstance(depth, tirx.IntImm):
        return None
    given = _shaped(bb, updates, [*places, *data.ty.shape.values[int(depth) :]])
    if given is None:
        return None
    sizes = relax.op.strided_slice(_sizes(bb, data), [0], [0], [int(depth)])
    from_end = relax.op.less(indices, _numbers(0))
    indices = relax.op.where(from_end, relax.op.add(indices, sizes), indices)
    return relax.op.scatter_nd(data, bb.emit(indices), given, _reduction(attributes))


def _shaped(bb: relax.BlockBuilder, x: Any, wanted: Sequence[Any]) -> relax.Expr | None:
    """A tensor in a shape that it has if the model is right; None where no size is data."""
    sizes = list(x.ty.shape.values)
    same = len(sizes) == len(wanted) and all(map(tvm_ffi.structural_equal, sizes, wanted))
    if same or all(isinstance(size, tirx.IntImm) for size in (*sizes, *wanted)):
        return None
    return bb.emit(relax.op.reshape(x, relax.ShapeExpr(list(wanted))))


def _reduction(attributes: Mapping[str, Any]) -> str:
    given = attributes.get("reduction", "none")
    name = given.decode() if isinstance(given, bytes) else str(given)
    return "update" if name == "none" else name


def _cumulative_product(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    data, axis = inputs[0], int(inputs[1].value.numpy().item())
    back = attributes.get("reverse", 0)
    ordered = relax.op.flip(data, axis) if back else data
    product = relax.op.cumprod(ordered, axis, exclusive=bool(attributes.get("exclusive", 0)))
    return relax.op.flip(product, axis) if back else product


def _space_to_depth(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """Columns before depth or after it, as ``mode`` says: TVM's converter does not look at it."""
    (data,) = inputs
    mode = attributes.get("mode", "DCR")
    if mode in (b"DCR", "DCR"):
        return None
    batch, channels, height, width = data.ty.shape.values
    side = int(attributes["blocksize"])
    blocks = [batch, channels, height // side, side, width // side, side]
    apart = relax.op.permute_dims(relax.op.reshape(data, blocks), [0, 1, 3, 5, 2, 4])
    return relax.op.reshape(apart, [batch, channels * side * side, height // side, width // side])


def _deform_conv(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    x, weight, offset, bias, mask = [*inputs, None, None][:5]
    if x.ty.ndim != 4:
        raise ValueError("deformable convolutions of images can be computed, of nothing else")
    pads = attributes.get("pads", [0] * 4)
    stride, dilation = (attributes.get(name, [1, 1]) for name in ("strides", "dilations"))
    convolution = DeformableConvolution(
        (int(stride[0]), int(stride[1])),
        (int(pads[0]), int(pads[1])),
        (int(dilation[0]), int(dilation[1])),
        int(attributes.get("group", 1)),
        int(attributes.get("offset_group", 1)),
    )
    return convolution.convert(bb.emit, x, weight, offset, mask, bias)


def _non_max_suppression(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """The smaller corner is first, and limits are constants (``operators.selections``)."""
    boxes, scores, *limits = inputs
    most, overlap, score = (
        default if value is None else value.value.numpy().item()
        for value, default in zip((*limits, None, None, None), (0, 0.0, LEAST), strict=False)
    )
    return non_max_suppression(bb, boxes, scores, float(overlap), int(most), float(score))


def _unsqueeze(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr | None:
    """PyTorch writes the axes that are one as a number."""
    data, *given = inputs
    if not given or not isinstance(given[0], tvm.ir.GenericConst) or given[0].ty.ndim:
        return None
    return None if is_shape(data) else relax.op.expand_dims(data, [int(given[0].value.numpy())])


#: By the operator's name; one that gives nothing leaves the node to TVM's converter.
CONVERTERS: Mapping[str, Converter] = {
    "BitCast": bit_cast,
    "Cast": _cast,
    "Col2Im": col2im,
    "Concat": _concat,
    "ConcatFromSequence": _concat_from_sequence,
    "CumProd": _cumulative_product,
    "DFT": signals.dft,
    "DeformConv": _deform_conv,
    "Det": determinant,
    "Expand": _expand,
    "LinearAttention": linear_attention,
    "NonMaxSuppression": _non_max_suppression,
    "Reshape": _reshape,
    "Resize": resize,
    "Slice": _slice,
    "STFT": signals.stft,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "SpaceToDepth": _space_to_depth,
    "SplitToSequence": split_to_sequence,
    "Squeeze": _squeeze,
    "TopK": _top_k,
    "Unsqueeze": _unsqueeze,
    **open_steps.CONVERTERS,
    **random_nodes.CONVERTERS,
}
