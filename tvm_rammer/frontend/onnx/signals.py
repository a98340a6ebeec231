"""Converters of ONNX's Fourier transforms, whose last axis has real and imaginary parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from tvm_rammer.frontend.fourier import MOST_ELEMENTS, Fourier
from tvm_rammer.frontend.part_of_axis import surrounded
from tvm_rammer.frontend.sizes import as_number, as_size


def dft(bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> relax.Expr:
    """``DFT``; one that is inverse and has one side only gives real numbers."""
    x, length, given_axis = [*inputs, None, None][:3]
    rank = x.ty.ndim
    axis = attributes.get("axis", None if given_axis is None else _number(given_axis, "axis"))
    if axis is None and rank != 3:
        raise ValueError("the default of its axis changed between versions; say which one it is")
    axis = rank - 2 if axis is None else int(axis) % rank
    inverse, onesided = (bool(attributes.get(name, 0)) for name in ("inverse", "onesided"))
    given = as_number(x.ty.shape[axis])
    size = 2 * (given - 1) if inverse and onesided else given
    if length is not None:
        size = _number(length, "length")
    _check(size)
    fourier = Fourier(size, inverse, size if inverse else 1)
    half = size // 2 + 1
    x = _of_size(bb, x, axis, half if inverse and onesided else size)
    order = [*(k for k in range(rank - 1) if k != axis), axis]
    parts = [bb.emit(relax.op.permute_dims(part, order)) for part in _parts(bb, x)]
    if inverse and onesided:
        results = [fourier.to_real(bb, *parts)]
    else:
        results = list(_transformed(bb, fourier, parts, half if onesided else size))
    back = np.argsort(order).tolist()
    results = [bb.emit(relax.op.permute_dims(result, back)) for result in results]
    return relax.op.stack(results, -1)


def stft(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """``STFT``: transforms of windows that may overlap."""
    signal, given_step, window, length = [*inputs, None, None][:4]
    step = _number(given_step, "step")
    if length is not None:
        size = _number(length, "length")
    elif window is not None:
        size = int(window.ty.shape[0])
    else:
        raise ValueError("it has neither a window nor the length of one")
    _check(size)
    places = _windows(bb, as_number(signal.ty.shape[1]), size, step)
    parts = [bb.emit(relax.op.take(part, places, 1, "clip")) for part in _parts(bb, signal)]
    if window is not None:
        parts = [bb.emit(relax.op.multiply(part, window)) for part in parts]
    kept = size // 2 + 1 if attributes.get("onesided", 1) else size
    return relax.op.stack(list(_transformed(bb, Fourier(size), parts, kept)), -1)


def _transformed(
    bb: relax.BlockBuilder, fourier: Fourier, parts: Sequence[Any], kept: Any
) -> tuple[Any, Any]:
    if len(parts) == 1:
        return fourier.of_real(bb, parts[0], kept)
    real, imaginary = parts
    return fourier.of_complex(bb, real, imaginary, kept)


def _parts(bb: relax.BlockBuilder, x: Any) -> list[Any]:
    """Real parts and, if there are any, imaginary ones."""
    axis = x.ty.ndim - 1
    places = range(int(x.ty.shape[axis]))
    return [bb.emit(relax.op.take(x, relax.const(place, "int64"), axis)) for place in places]


def _windows(bb: relax.BlockBuilder, length: Any, size: int, step: int) -> Any:
    """Places of a signal's elements, a row for each window."""
    if isinstance(length, int):
        starts = np.arange(0, length - size + 1, step)
        return relax.const(starts[:, None] + np.arange(size), "int64")
    count = tirx.max(tirx.floordiv(length - size, as_size(step)) + 1, as_size(0))
    return bb.emit_te(
        lambda count: te.compute((count, size), lambda n, k: n * step + k, "windows"), count
    )


def _of_size(bb: relax.BlockBuilder, x: Any, axis: int, size: Any) -> Any:
    """Cut, or filled up with zeros."""
    given = as_number(x.ty.shape[axis])
    if tvm_ffi.structural_equal(as_size(given), as_size(size)):
        return x
    if not (isinstance(given, int) and isinstance(size, int)):
        none = [as_size(0)] * x.ty.ndim
        behind = [*none[:axis], as_size(size) - as_size(given), *none[axis + 1 :]]
        return bb.emit_te(surrounded, x, none, behind, 0.0)
    if size < given:
        return bb.emit(relax.op.strided_slice(x, [axis], [0], [size]))
    widths = [0] * (2 * x.ty.ndim)
    widths[2 * axis + 1] = size - given
    return bb.emit(relax.op.nn.pad(x, widths)) if size > given else x


def _number(operand: Any, name: str) -> int:
    if not isinstance(operand, tvm.ir.GenericConst):
        raise ValueError(f"its {name} is known only at run time; fix it with constants=")
    return int(operand.value.numpy().item())


def _check(size: Any) -> None:
    if isinstance(size, int) and size > MOST_ELEMENTS:
        raise ValueError(f"transforms of more than {MOST_ELEMENTS} elements cannot be computed")
