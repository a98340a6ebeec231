"""What moves elements and computes nothing: views, permutations, concatenation, padding."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_rammer.frontend.part_of_axis import part, surrounded
from tvm_rammer.frontend.sizes import as_size
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    are_numbers,
    dtype_of,
    shape_of,
    table,
)
from tvm_rammer.frontend.torch.size_symbols import Size


def _reshaped(call: OperatorCall, x: Any, *_: Any) -> Any:
    return call.reshape(x, call.shape)


def _squeezed(call: OperatorCall, x: Any, dim: Any = None) -> Any:
    shape = shape_of(x)
    dims = range(len(shape)) if dim is None else dim if isinstance(dim, list) else [dim]
    axes = sorted({axis % len(shape) for axis in dims if shape and shape[axis] == 1})
    return call.emit(relax.op.squeeze(x, axes)) if axes else x


def _unsqueezed(call: OperatorCall, x: Any, dim: int) -> Any:
    return call.emit(relax.op.expand_dims(x, dim % len(call.shape)))


def _permuted(call: OperatorCall, x: Any, dims: list[int]) -> Any:
    return call.permute(x, [axis % len(dims) for axis in dims])


def _transposed(call: OperatorCall, x: Any, first: int, second: int) -> Any:
    axes = list(range(len(call.shape)))
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return call.permute(x, axes)


def _expanded(call: OperatorCall, x: Any, *_: Any) -> Any:
    return call.broadcast(x, call.shape)


def _copied(call: OperatorCall, _: Any, source: Any, *__: Any) -> Any:
    return call.broadcast(call.cast(source), call.shape)


def _repeated(call: OperatorCall, x: Any, repeats: list[int]) -> Any:
    if 0 in call.shape:
        return call.reshape(x, call.shape)
    if are_numbers(*repeats) and any(times != 1 for times in repeats):
        return call.emit(relax.op.tile(x, repeats))
    own = (1,) * (len(repeats) - x.ty.ndim) + shape_of(x)
    if all(are_numbers(times) and times == 1 for times in repeats):
        return _reshaped(call, x)
    # Each axis behind one for its repetitions.
    apart = call.reshape(x, [each for size in own for each in (1, size)])
    whole = [each for pair in zip(repeats, own, strict=True) for each in pair]
    return _reshaped(call, call.broadcast(apart, whole))


def _concatenated(call: OperatorCall, tensors: list[Any], dim: int = 0) -> Any:
    """Operands of one type; empty ones are left out (PyTorch takes them in any shape)."""
    parts = [call.cast(x) for x in tensors if 0 not in shape_of(x)]
    if not parts:
        return call.reshape(call.cast(tensors[0]), call.shape)
    axis = dim % len(call.shape)
    parts = [call.fitted(part, axis) for part in parts]
    return call.emit(relax.op.concat(parts, axis)) if len(parts) > 1 else parts[0]


def _split(call: OperatorCall, x: Any, sizes: list[Size], dim: int = 0) -> Any:
    axis = dim % len(shape_of(x))
    if not are_numbers(*sizes):
        starts = itertools.accumulate(map(as_size, sizes[:-1]), initial=as_size(0))
        pairs = zip(starts, map(as_size, sizes), strict=True)
        return [call.compute(part, x, axis, start, count, 1) for start, count in pairs]
    ends = np.cumsum(sizes)[:-1].tolist()
    if 0 in sizes:
        return call.refuse("a part is empty")
    return call.emit(relax.op.split(x, ends, axis)) if ends else [x]


def sliced(
    call: OperatorCall, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """``x[..., start:end:step]``, with Python's meaning of negative and large bounds."""
    shape = list(shape_of(x))
    axis = dim % len(shape)
    if not are_numbers(start, end, shape[axis]):
        if start in (None, 0) and step == 1 and (end is None or end == shape[axis]):
            return x
        first = as_size(0) if start is None else _bound(start, shape[axis])
        last = as_size(shape[axis]) if end is None else _bound(end, shape[axis])
        return call.compute(part, x, axis, first, (last - first + step - 1) // step, step)
    start, end, step = slice(start, end, step).indices(shape[axis])
    if (start, end, step) == (0, shape[axis], 1):
        return x
    if start >= end or 0 in shape:
        shape[axis] = len(range(start, end, step))
        return call.reshape(x, shape)
    return call.emit(relax.op.strided_slice(x, [axis], [start], [end], [step]))


def _slice(
    call: OperatorCall, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """``x[..., start:end:step]``, with as many elements as PyTorch says."""
    axis, start = dim % x.ty.ndim, 0 if start is None else start
    size = shape_of(x)[axis]
    if are_numbers(start, end, size):
        return sliced(call, x, dim, start, end, step)
    count = call.shape[axis]
    if call.names(count):
        first, last = (_at_run_time(call, bound, size) for bound in (start, end))
        steps = relax.op.add(relax.op.subtract(last, first), table(step - 1))
        found = relax.op.floor_divide(steps, table(step))
        call.name_size(relax.op.maximum(found, table(0)), count)
    elif are_numbers(start) and start >= 0:
        call.require(size, start + (count - 1) * step + 1)
    return call.compute(part, x, axis, from_front(start, size), as_size(count), step)


def from_front(bound: Size, size: Size) -> Any:
    """Where a slice begins, in what an operator computes; a negative one counts from behind."""
    if isinstance(bound, int):
        return _bound(bound, size)
    bound = tirx.Select(bound < 0, bound + size, bound)
    return tirx.max(tirx.min(bound, as_size(size)), as_size(0))


def _at_run_time(call: OperatorCall, bound: Any, size: Size) -> Any:
    """Where a slice begins or ends, as a tensor."""
    whole = call.cast(size, "int64")
    if bound is None or (isinstance(bound, int) and bound >= sys.maxsize):
        return whole
    place = call.cast(bound, "int64")
    behind = relax.op.less(place, table(0))
    place = relax.op.where(behind, relax.op.add(place, whole), place)
    return call.emit(relax.op.maximum(relax.op.minimum(place, whole), table(0)))


def _bound(bound: Any, size: Size) -> Any:
    """Where a slice begins or ends, of as many elements as only the run tells."""
    if not isinstance(bound, int):
        return bound
    if bound < 0:
        return tirx.max(as_size(size + bound), as_size(0))
    return tirx.min(as_size(bound), as_size(size)) if bound else as_size(0)


def _flipped(call: OperatorCall, x: Any, dims: list[int]) -> Any:
    for axis in dims:
        x = call.emit(relax.op.flip(x, axis % len(call.shape)))
    return x


def _rolled(call: OperatorCall, x: Any, shifts: list[int], dims: Any = ()) -> Any:
    """The parts before and behind the cut change places."""
    shape = shape_of(x)
    if not dims:
        x, dims = call.reshape(x, (math.prod(shape),)), [0]
    for shift, axis in zip(shifts, dims, strict=True):
        if not are_numbers(shift, shape_of(x)[axis]):
            rolled = call.compute(_rolled_places, as_size(shape_of(x)[axis]), as_size(shift))
            x = call.take(x, rolled, axis)
            continue
        cut = -shift % max(shape_of(x)[axis], 1)
        if cut:
            parts = [sliced(call, x, axis, cut), sliced(call, x, axis, 0, cut)]
            x = call.emit(relax.op.concat(parts, axis % x.ty.ndim))
    return call.reshape(x, shape)


def _rolled_places(size: Any, shift: Any) -> te.Tensor:
    return te.compute((size,), lambda k: tirx.floormod(k - shift, size), "rolled")


def _padded(call: OperatorCall, x: Any, pad: list[int], value: Any = 0) -> Any:
    """Padding from the last axis on; a negative one cuts."""
    rank = len(shape_of(x))
    pairs = [(0, 0)] * (rank - len(pad) // 2) + [
        (pad[k], pad[k + 1]) for k in range(len(pad) - 2, -1, -2)
    ]
    if not are_numbers(*pad):
        sides = (list(map(as_size, side)) for side in zip(*pairs, strict=True))
        return call.compute(surrounded, x, *sides, value or 0)
    for axis, (before, after) in enumerate(pairs):
        end = shape_of(x)[axis] + min(after, 0)
        x = sliced(call, x, axis, -min(before, 0), end)
    if 0 in shape_of(x):
        return call.filled(call.shape, value or 0)
    widths = [max(width, 0) for pair in pairs for width in pair]
    if not any(widths):
        return x
    kind = dtype_of(x)
    if kind == "bool":
        x = call.cast(x, "int8")
    padded = call.emit(relax.op.nn.pad(x, widths, "constant", value or 0))
    return call.cast(padded, kind)


CONVERTERS: dict[str, Converter] = {
    "view.default": _reshaped,
    "reshape.default": _reshaped,
    "_unsafe_view.default": _reshaped,
    "squeeze.default": _squeezed,
    "squeeze.dim": _squeezed,
    "squeeze.dims": _squeezed,
    "unsqueeze.default": _unsqueezed,
    "permute.default": _permuted,
    "transpose.int": _transposed,
    "expand.default": _expanded,
    "copy.default": _copied,
    "copy_strided.default": lambda call, x, *_: x,
    "repeat.default": _repeated,
    "cat.default": _concatenated,
    "split_with_sizes.default": _split,
    "slice.Tensor": _slice,
    "flip.default": _flipped,
    "roll.default": _rolled,
    "constant_pad_nd.default": _padded,
}
