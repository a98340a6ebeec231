"""Neighbouring integers are multiplied by one instruction, exactly."""

from __future__ import annotations

from typing import Any

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
}


def integers(shape: tuple[int, ...], seed: int = 0, dtype: str = "int16", shift: int = 0) -> Any:
    """Any that the type has, at both ends too; with ``shift`` they have so many bits fewer."""
    least, most = (limit >> shift for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    made = np.random.default_rng(seed).integers(least, most + 1, shape).astype(dtype)
    made.reshape(-1)[:1], made.reshape(-1)[1:2] = most, least
    return made


def product(data: np.ndarray, weights: np.ndarray) -> tirx.PrimFunc:
    return legalized_func(lambda x, w: OP.matmul(x, w, out_dtype="int32"), data, weights)


@pytest.mark.parametrize("name", TARGETS)
def test_the_instruction_is_there(name):
    processor, (of_data, of_weights), instruction, register = TARGETS[name]
    target = resolve_target({"kind": "llvm", "mcpu": processor})
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
