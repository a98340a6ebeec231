"""Tensors that NumPy and TVM share: a network's weights are hundreds of megabytes to copy.

The memory is NumPy's, which asks for large pages: to touch new memory in small ones takes longer
than to copy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

#: What TVM's kernels may rely on.
_ALIGNMENT = 64
#: Larger arrays are transposed so many columns at a time: as many rows are read at once.
_COLUMNS, _LARGE = 16, 1 << 18


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array, not initialised, that TVM can share."""
    nbytes = prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one of a tensor, whose rows may lie apart."""
    if not strides or 0 in shape:
        return prod(shape)
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def compact(array: np.ndarray) -> np.ndarray:
    """An array with these elements, row by row, that TVM can share: itself if possible."""
    flags = array.flags
    if flags.c_contiguous and flags.writeable and array.ctypes.data % _ALIGNMENT == 0:
        # Axes of one element may have any stride, and an array of NumPy's own says which.
        return array.reshape(-1).reshape(array.shape)
    copy = empty(array.shape, array.dtype)
    transposed = array.size >= _LARGE and array.strides[-1] != array.itemsize
    if not transposed:
        copy[...] = array
        return copy
    for start in range(0, array.shape[-1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        copy[..., columns] = array[..., columns]
    return copy


def as_tensor(array: np.ndarray) -> tvm.runtime.Tensor:
    """A tensor with the elements of an array, in the same memory if possible."""
    # NumPy gives an empty array a stride of 0, which compiled code does not take.
    if array.size and _shared(array.dtype):
        return tvm_ffi.from_dlpack(compact(array))
    return tvm.runtime.empty(array.shape, array.dtype.name).copyfrom(array)


def as_array(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """The elements of a tensor, which must not be changed; in the same memory if possible."""
    name = str(tensor.dtype)
    known = name in np.sctypeDict and _shared(np.dtype(name))
    return np.from_dlpack(tensor) if known else tensor.numpy()


def random_values(
    rng: np.random.Generator, shape: Sequence[int], dtype: Any, below: int = 8
) -> np.ndarray:
    """Fair coins, integers from 0 to below some number, or standard normal numbers."""
    dtype = np.dtype(dtype)
    if dtype.kind in "biu":
        return rng.integers(0, 2 if dtype.kind == "b" else below, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def held_as(dtype: Any) -> np.dtype[Any]:
    """NumPy's type for the bits of TVM's: it has no bfloat16."""
    return np.dtype("uint16" if str(dtype) == "bfloat16" else dtype)


def constant(array: np.ndarray) -> Any:
    """A constant in Relax, of the array's own type."""
    return relax.const(as_tensor(array))


def _shared(dtype: np.dtype) -> bool:
    """Whether NumPy and TVM can tell each other about a type."""
    return dtype.isbuiltin == 1 and dtype.kind in "fiu"
