"""Neighbouring integers are multiplied by one instruction, exactly; so are pairs of bfloat16."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import VDEVICES, legalized_func, run_prim_func
from tvm import relax, tirx

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import build_operators
from tvm_rammer.backend.cpu.codegen.neighbour_products import MultiplyNeighbours
from tvm_rammer.backend.cpu.templates.select import schedule
from tvm_rammer.backend.registry import vdevice_for
from tvm_rammer.kernel.loops import NEIGHBOURS
from tvm_rammer.kernel.nodes import collect

OP = relax.op
#: A target, the types of data and weights, the instruction, and the vectors that it works on.
TARGETS = {
    "sse": ("nehalem", ("int16", "int16"), "pmaddwd", "%xmm"),
    "avx2": ("core-avx2", ("int16", "int16"), "vpmaddwd", "%ymm"),
    "avx512": ("skylake-avx512", ("int16", "int16"), "vpmaddwd", "%zmm"),
    "vnni": ("icelake-server", ("int16", "int16"), "vpdpwssd", "%zmm"),
    "bytes": ("icelake-server", ("uint8", "int8"), "vpdpbusd", "%zmm"),
    "bytes in short vectors": ("alderlake", ("uint8", "int8"), "vpdpbusd", "%ymm"),
    "bfloat16": ("cooperlake", ("bfloat16", "bfloat16"), "vdpbf16ps", "%zmm"),
}


def integers(shape: tuple[int, ...], seed: int = 0, dtype: str = "int16", shift: int = 0) -> Any:
    """Any that the type has, at both ends too; with ``shift`` they have so many bits fewer."""
    least, most = (limit >> shift for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    made = np.random.default_rng(seed).integers(least, most + 1, shape).astype(dtype)
    made.reshape(-1)[:1], made.reshape(-1)[1:2] = most, least
    return made


def floats(shape: tuple[int, ...], seed: int = 0) -> Any:
    made = np.random.default_rng(seed).standard_normal(shape, "float32")
    return made.astype(ml_dtypes.bfloat16)


def product(data: np.ndarray, weights: np.ndarray) -> tirx.PrimFunc:
    dtype = "int32" if data.dtype.kind in "iu" else "float32"
    return legalized_func(lambda x, w: OP.matmul(x, w, out_dtype=dtype), data, weights)


@pytest.mark.parametrize("name", TARGETS)
def test_the_instruction_is_there(name):
    processor, (of_data, of_weights), instruction, register = TARGETS[name]
    target = resolve_target({"kind": "llvm", "mcpu": processor})
    if of_data == "bfloat16":
        func = product(floats((32, 64)), floats((64, 64)))
    else:
        func = product(integers((32, 64), dtype=of_data), integers((64, 64), dtype=of_weights))
    made = schedule(func, frozenset({1}), vdevice_for(target))
    assert made.origin == "matmul"
    (module,) = build_operators({"product": made.func}, target)
    lines = module.inspect_source("asm").splitlines()
    assert any(instruction in line and register in line for line in lines)
    assert not any("pmulld" in line or "pmullw" in line for line in lines)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 20),
    summed=st.integers(1, 40),
    columns=st.integers(1, 70),
    # The sum of forty largest products fits in 32 bits.
    dtypes=st.sampled_from((("int16", "int16", 5), ("uint8", "int8", 0))),
    vdevice=st.sampled_from(VDEVICES),
    seed=st.integers(0, 9),
)
def test_sums_are_exact(rows, summed, columns, dtypes, vdevice, seed):
    """Sums with neighbours missing and few columns, which have no vectors, too."""
    of_data, of_weights, shift = dtypes
    weights = integers((summed, columns), seed, of_weights, shift)
    data = integers((rows, summed), seed + 1, of_data)
    func = product(data, weights)
    run = run_prim_func(func, [data, weights], constants=(1,), vdevice=vdevice)
    wanted = data.astype("int64") @ weights.astype("int64")
    np.testing.assert_array_equal(run.outputs[0], wanted)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 20),
    summed=st.one_of(st.integers(1, 40), st.sampled_from([512, 1376, 2050])),
    columns=st.integers(1, 90),
    vdevice=st.sampled_from(VDEVICES),
    seed=st.integers(0, 9),
)
def test_sums_of_bfloat16_are_those_of_float32(rows, summed, columns, vdevice, seed):
    """Whatever the processor has: pairs where it has them, else each is widened."""
    weights, data = floats((summed, columns), seed), floats((rows, summed), seed + 1)
    run = run_prim_func(product(data, weights), [data, weights], constants=(1,), vdevice=vdevice)
    wanted = data.astype("float64") @ weights.astype("float64")
    largest = np.abs(data).astype("float64") @ np.abs(weights).astype("float64")
    assert (np.abs(run.outputs[0] - wanted) <= 1e-6 * largest + 1e-30).all()


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_pairs_of_bfloat16_in_vectors_of_all_lengths(lanes):
    """With few columns vectors are shorter than the device's."""
    target = resolve_target({"kind": "llvm", "mcpu": "cooperlake"})
    func = product(floats((3, 64)), floats((64, lanes)))
    made = schedule(func, frozenset({1}), vdevice_for(target))
    (module,) = build_operators({"product": made.func}, target)
    register = {4: "%xmm", 8: "%ymm", 16: "%zmm"}[lanes]
    lines = [line for line in module.inspect_source("asm").splitlines() if "vdpbf16ps" in line]
    assert lines
    assert all(register in line for line in lines)


@pytest.mark.parametrize(("padding", "strides"), [(0, 1), (1, 1), (1, 2)])
def test_windows_of_bfloat16(padding, strides):
    """What is not there, beyond the edge of the image, is no number to be read."""
    data, weights = floats((1, 9, 9, 8)), floats((32, 3, 3, 8), 1)

    def convolved(x, w):
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "float32"}
        return OP.nn.conv2d(x, w, padding=padding, strides=strides, **layouts)

    run = run_prim_func(legalized_func(convolved, data, weights), [data, weights], constants=(1,))
    ends = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(data.astype("float64"), ends)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    windows = windows[:, ::strides, ::strides]
    wanted = np.einsum("nyxchw,ohwc->nyxo", windows, weights.astype("float64"))
    np.testing.assert_allclose(run.outputs[0], wanted, rtol=1e-4, atol=1e-4)


def test_pairs_of_the_least_integer():
    """The instruction's one product that 32 bits do not hold wraps around, as sums do."""
    least = np.full((4, 2), -(1 << 15), "int16")
    weights = np.full((2, 8), -(1 << 15), "int16")
    func = product(least, weights)
    (got,) = run_prim_func(func, [least, weights], constants=(1,)).outputs
    assert (got == np.int32(-(1 << 31))).all()


def test_a_marked_loop_of_another_form_stays_as_it_is():
    buffer = tirx.decl_buffer((8,), "int32", "sums")
    lane = tirx.Var("lane", "int64")
    body = tirx.BufferStore(buffer, buffer[lane] + lane.astype("int32"), [lane])
    bounds = (tirx.const(0, "int64"), tirx.const(8, "int64"))
    loop = tirx.For(lane, *bounds, tirx.ForKind.VECTORIZED, body, annotations={NEIGHBOURS: 2})
    mod = tvm.IRModule({"main": tirx.PrimFunc([buffer], loop)})
    after = MultiplyNeighbours()(mod)["main"]
    assert [each.kind for each in collect(after.body, tirx.For)] == [tirx.ForKind.VECTORIZED]
