"""Arguments of a kernel: what fits is taken, whatever does not is named in the error."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stress.compiled_regions import aligned_copy, in_new_thread
from tvm import te

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.codegen.instruction_table import (
    arena_tensor_bytes,
    bases_offset,
    instruction_table,
)
from tvm_rammer.backend.cpu.codegen.region_modules import build_module
from tvm_rammer.backend.cpu.codegen.shard_compiler import ShardCompiler
from tvm_rammer.backend.plan_rows import BaseLayout
from tvm_rammer.backend.signature import RegionSignature, TensorSpec
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.rprogram import RProgram

INPUTS = (
    TensorSpec((2, 1, 3), "float32"),
    TensorSpec((), "int64"),
    TensorSpec((5,), "bool"),
    TensorSpec((4, 0, 3), "float16"),
    TensorSpec((2, 1, 3), "float32"),
)
OUTPUTS = (TensorSpec((3, 2), "int8"), TensorSpec((1, 1, 4, 1), "float64"))
SIGNATURE = RegionSignature("region", INPUTS, OUTPUTS)
#: An empty plan: what the kernel does is to take its arguments.
PROGRAM = RProgram("region", "none", (), (), (), ((),), 0)
CONSTANTS, TABLE, ARENA = len(INPUTS), len(INPUTS) + 1, len(INPUTS) + 2 + len(OUTPUTS)
DTYPES = ("float32", "int64", "bool", "float16", "int8", "float64", "int32", "uint8")


@pytest.fixture(scope="module")
def kernel():
    target = resolve_target()
    library = KernelLibrary(vdevice_for(target))
    x = te.placeholder((4,), name="x")
    library.get(te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1)]), frozenset())
    entry = build_module(library.bodies, [SIGNATURE], ShardCompiler(target))[SIGNATURE.name]
    # TVM pins a thread that launches, and what it starts later, unless its pool is configured.
    return lambda *arguments: in_new_thread(lambda: entry(*arguments), workers=1)


def fitting():
    """Arrays that the kernel takes."""
    inputs, outputs = ([np.ones(s.shape, s.dtype) for s in specs] for specs in (INPUTS, OUTPUTS))
    table = instruction_table(PROGRAM, BaseLayout.of(SIGNATURE), {})
    arena = np.full(arena_tensor_bytes(PROGRAM, BaseLayout.of(SIGNATURE)), 0xFF, np.uint8)
    return [
        *inputs,
        *map(aligned_copy, (np.zeros(64, np.uint8), table)),
        *outputs,
        aligned_copy(arena),
    ]


def pointers(arrays):
    """The base pointers that a run left at the head of the arena."""
    count = BaseLayout.of(SIGNATURE).num_bases
    start = bases_offset(PROGRAM.num_veus)
    return arrays[ARENA][start : start + 8 * count].view(np.int64).tolist()


def test_every_pointer_is_where_the_bodies_look_for_it(kernel):
    arrays = fitting()
    kernel(*map(tvm_ffi.from_dlpack, arrays))
    layout = [ARENA, CONSTANTS, *range(CONSTANTS), *range(TABLE + 1, ARENA)]
    assert pointers(arrays) == [arrays[number].ctypes.data for number in layout]


def test_tensors_may_begin_within_their_memory(kernel):
    """TVM's memory planner gives such tensors to those who ask it for views."""
    arrays = fitting()
    whole = tvm.runtime.tensor(np.arange(20, dtype="float32"))
    part = whole._create_view((2, 1, 3), "float32", relative_byte_offset=16)
    kernel(part, *map(tvm_ffi.from_dlpack, arrays[1:]))
    begin = np.from_dlpack(whole).ctypes.data
    assert pointers(arrays)[2] == begin + 16


def compact(array, spec):
    """Whether an array has a spec's shape and no gaps; an axis of one element has none."""
    if array.size == 0:
        return array.shape == spec.shape
    expected = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent != 1 and stride != expected * array.itemsize:
            return False
        expected *= extent
    return array.shape == spec.shape


@st.composite
def any_arrays(draw):
    """An array of a few elements with any dtype, shape and strides."""
    shape = draw(
        st.one_of(
            st.sampled_from([s.shape for s in (*INPUTS, *OUTPUTS)]),
            st.lists(st.integers(0, 5), max_size=4).map(tuple),
        )
    )
    axes = tuple(draw(st.permutations(range(len(shape)))))
    stored = [0] * len(shape)
    for place, axis in enumerate(axes):
        stored[axis] = shape[place]
    step = draw(st.sampled_from([1, 1, 2]))
    memory = np.zeros(
        (*stored[:-1], stored[-1] * step) if stored else (), draw(st.sampled_from(DTYPES))
    )
    return (memory[..., ::step] if stored else memory).transpose(axes)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(array=any_arrays(), number=st.sampled_from([*range(CONSTANTS), TABLE + 1, TABLE + 2]))
def test_a_tensor_is_taken_if_it_fits(kernel, array, number):
    """By its dtype, shape and strides, and by nothing else."""
    arrays = fitting()
    spec = SIGNATURE.arguments()[number]
    arrays[number] = array
    arguments = list(map(tvm_ffi.from_dlpack, arrays))
    if array.dtype == spec.dtype and compact(array, spec):
        kernel(*arguments)
    else:
        with pytest.raises(
            (TypeError, ValueError), match=rf"^region: argument {number} must be a "
        ):
            kernel(*arguments)


@pytest.mark.parametrize(
    ("number", "wrong", "kind", "message"),
    [
        (0, 3, TypeError, "[2, 1, 3] on the CPU; it is no tensor"),
        (0, None, TypeError, "[2, 1, 3] on the CPU; it is no tensor"),
        (0, np.ones((2, 1, 3)), TypeError, "[2, 1, 3] on the CPU; its dtype is another one"),
        (
            0,
            np.ones((2, 3), "float32"),
            ValueError,
            "[2, 1, 3] on the CPU; its number of axes is 2",
        ),
        (
            0,
            np.ones((2, 7, 3), "float32"),
            ValueError,
            "[2, 1, 3] on the CPU; its extent is 7 on axis 1",
        ),
        (
            0,
            np.ones((2, 1, 6), "float32")[..., ::2],
            ValueError,
            "[2, 1, 3] on the CPU; its stride is 6 on axis 0",
        ),
        (TABLE, np.ones(9, "int64"), TypeError, "[any] on the CPU; its dtype is another one"),
    ],
)
def test_the_error_says_what_does_not_fit(kernel, number, wrong, kind, message):
    arguments = list(map(tvm_ffi.from_dlpack, fitting()))
    arguments[number] = tvm_ffi.from_dlpack(wrong) if isinstance(wrong, np.ndarray) else wrong
    dtype = SIGNATURE.arguments()[number].dtype
    text = f"region: argument {number} must be a contiguous tensor of {dtype} {message}"
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        kernel(*arguments)
    kernel(*map(tvm_ffi.from_dlpack, fitting()))


def test_the_error_says_how_many_arguments_there_are(kernel):
    arguments = list(map(tvm_ffi.from_dlpack, fitting()))
    count = len(arguments)
    for given_ones in (arguments[:-1], [*arguments, arguments[0]], []):
        text = f"region: it takes {count} arguments, not {len(given_ones)}"
        with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
            kernel(*given_ones)
