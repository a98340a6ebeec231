"""Runs machine code for AArch64 on any machine: bodies of rTasks, and packed functions."""

from __future__ import annotations

import ctypes
import mmap
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import tvm
from aarch64_processor import INTEGER, Processor
from tvm import tirx

from tvm_rammer.kernel.bodies import Body, bodies_module, bytes_of, symbol_of

_MOST_AXES = 8


class _Argument(ctypes.Structure):
    """A ``TVMFFIAny``: an integer, or where a tensor is described."""

    _fields_ = [
        ("type_index", ctypes.c_int32),
        ("zero", ctypes.c_uint32),
        ("value", ctypes.c_int64),
    ]


class _Tensor(ctypes.Structure):
    """A ``DLTensor``, its shape and its strides."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_uint64),
        ("strides", ctypes.c_uint64),
        ("byte_offset", ctypes.c_uint64),
        ("extents", ctypes.c_int64 * _MOST_AXES),
        ("steps", ctypes.c_int64 * _MOST_AXES),
    ]


_TENSOR = 7
#: Of DLPack: signed, unsigned, floating point, truth values.
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


def processor_of(module: tvm.runtime.Module) -> Processor:
    """One that runs a compiled module and what it imports."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, part in enumerate((module, *module.imports)):
            path = Path(folder) / f"{number}.o"
            part.write_to_file(str(path), "o")
            files.append(path.read_bytes())
    return Processor(files)


def call_packed(processor: Processor, symbol: str, *arguments: int | np.ndarray) -> None:
    """Call a packed function on integers and on arrays, which it may change."""
    memory = np.frombuffer(mmap.mmap(-1, 16 * mmap.PAGESIZE), np.uint8)
    packed = (_Argument * (len(arguments) + 1)).from_buffer(memory)
    tensors = (_Tensor * len(arguments)).from_buffer(memory, ctypes.sizeof(packed))
    places = [(memory.ctypes.data, memory.size)]
    for k, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            place = ctypes.addressof(tensors[k])
            tensors[k] = _described(argument, place)
            packed[k] = _Argument(_TENSOR, 0, place)
            places.append((argument.ctypes.data, argument.nbytes))
        else:
            packed[k] = _Argument(INTEGER, 0, argument)
    result = ctypes.addressof(packed[len(arguments)])
    with processor.mapped(places):
        status = processor.call(
            f"__tvm_ffi_{symbol}", 0, memory.ctypes.data, len(arguments), result
        )
    assert status == 0, f"{symbol} returned {status}"


def _described(array: np.ndarray, place: int) -> _Tensor:
    """An array as a ``DLTensor`` that will be at an address."""
    assert array.ndim <= _MOST_AXES
    shape, strides = place + _Tensor.extents.offset, place + _Tensor.steps.offset
    extents = (ctypes.c_int64 * _MOST_AXES)(*array.shape)
    steps = (ctypes.c_int64 * _MOST_AXES)(*(step // array.itemsize for step in array.strides))
    code, bits = _CODES[array.dtype.kind], 8 * array.itemsize
    data = array.ctypes.data
    return _Tensor(data, 1, 0, array.ndim, code, bits, 1, shape, strides, 0, extents, steps)


def emulated_bodies(
    bodies: Mapping[str, tirx.PrimFunc], target: tvm.target.Target, pipeline: str
) -> dict[str, Body]:
    """As :func:`~tvm_rammer.kernel.bodies.compile_bodies`, for a target of AArch64."""
    if not bodies:
        return {}
    processor = processor_of(bodies_module(bodies, target, pipeline))
    return {name: partial(_run, processor, symbol_of(k)) for k, name in enumerate(bodies)}


def _run(
    processor: Processor, symbol: str, start: int, stop: int, arrays: Sequence[np.ndarray]
) -> None:
    call_packed(processor, symbol, start, stop, *map(bytes_of, arrays))
