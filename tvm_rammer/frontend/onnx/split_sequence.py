"""``SplitToSequence``: a tensor in parts, of sizes that may be data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_rammer.frontend.onnx.run_time_sizes import as_shape
from tvm_rammer.frontend.part_of_axis import part


def split_to_sequence(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """The parts along an axis, as a tuple.

    TVM's converter makes equal parts where a constant size does not divide an axis.

    Parameters
    ----------
    bb : relax.BlockBuilder
    inputs : sequence of relax.Expr
        A tensor, and perhaps the sizes of its parts: one for each, which may be data, or a constant
        for all of them but the last, which may be smaller.
    attributes : mapping
        ONNX's ``axis`` and ``keepdims``.

    Raises
    ------
    ValueError
        When only the run tells how many parts there are, or they do not fit.
    """
    data, split = [*inputs, None][:2]
    axis = int(attributes.get("axis", 0)) % data.ty.ndim
    size = data.ty.shape.values[axis]
    if split is not None and not isinstance(split, tvm.ir.GenericConst):
        return relax.Tuple(_chosen_parts(bb, data, split, axis))
    sizes = _known_sizes(split, size)
    parts = _parts(bb, data, sizes, axis)
    if split is None and not attributes.get("keepdims", 1):
        parts = [bb.emit(relax.op.squeeze(part, [axis])) for part in parts]
    return relax.Tuple(parts)


def _known_sizes(split: Any, size: Any) -> list[int]:
    """Of each part, where the model says them."""
    given = np.array(1) if split is None else split.value.numpy()
    if given.ndim:
        if given.min(initial=0) < 0:
            raise ValueError("a part of it would have less than no places")
        return [int(each) for each in given.tolist()]
    if not isinstance(size, tirx.IntImm):
        raise ValueError("how many parts it has is known only at run time; say how long each is")
    length = int(given)
    if length < 1:
        raise ValueError(f"it has parts of {length} places")
    whole, rest = divmod(int(size), length)
    return [length] * whole + [rest] * bool(rest)


def _parts(bb: relax.BlockBuilder, data: Any, sizes: Sequence[int], axis: int) -> list[Any]:
    """Parts of known sizes; where the axis is data, it is as long as they are, or the run ends."""
    whole = list(data.ty.shape.values)
    if not isinstance(whole[axis], tirx.IntImm):
        whole[axis] = sum(sizes)
        data = bb.match_cast(data, relax.TensorType(whole, data.ty.dtype))
    elif sum(sizes) != int(whole[axis]):
        raise ValueError(f"its parts have {sum(sizes)} places in all, and the axis {whole[axis]}")
    if len(sizes) < 2:
        return [data] * len(sizes)
    found = bb.emit(relax.op.split(data, [*accumulate(sizes)][:-1], axis))
    return [bb.emit(relax.TupleGetItem(found, number)) for number in range(len(sizes))]


def _chosen_parts(bb: relax.BlockBuilder, data: Any, split: Any, axis: int) -> list[Any]:
    """Parts of sizes that are data: together they are the axis, or the run ends there."""
    if split.ty.ndim != 1 or not isinstance(split.ty.shape.values[0], tirx.IntImm):
        raise ValueError("how many parts it has is known only at run time; fix it with constants=")
    count = int(split.ty.shape.values[0])
    sizes = bb.emit(relax.op.astype(split, "int64"))
    ends = bb.emit(relax.op.cumsum(sizes, axis=0))
    total = bb.emit(relax.op.strided_slice(ends, [0], [count - 1], [count]))
    fits = relax.ShapeType([data.ty.shape.values[axis]])
    bb.match_cast(bb.emit(relax.op.tensor_to_shape(total)), fits)
    starts = bb.emit(relax.op.subtract(ends, sizes))
    found = as_shape(bb, bb.emit(relax.op.concat([starts, sizes]))).values

    pairs = zip(found[:count], found[count:], strict=True)
    return [bb.emit_te(part, data, axis, *pair) for pair in pairs]
