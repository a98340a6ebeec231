"""Pairs of 16-bit integers are multiplied by one instruction, exactly."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import VDEVICES, constant, legalized_func, run_prim_func
from tvm import relax, tirx

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import build_operators
from tvm_rammer.backend.cpu.codegen.pair_products import MultiplyPairs
from tvm_rammer.backend.cpu.templates.select import schedule
from tvm_rammer.backend.registry import vdevice_for
from tvm_rammer.kernel.loops import PAIRED
from tvm_rammer.kernel.nodes import collect

OP = relax.op
#: A target, the instruction, and the vector registers that it works on.
TARGETS = {
    "sse": ({"kind": "llvm", "mcpu": "nehalem"}, "pmaddwd", "%xmm"),
    "avx2": ({"kind": "llvm", "mcpu": "core-avx2"}, "vpmaddwd", "%ymm"),
    "avx512": ({"kind": "llvm", "mcpu": "skylake-avx512"}, "vpmaddwd", "%zmm"),
    "vnni": ({"kind": "llvm", "mcpu": "icelake-server"}, "vpdpwssd", "%zmm"),
}


def product(weights: np.ndarray, data: np.ndarray) -> tirx.PrimFunc:
    return legalized_func(lambda x: OP.matmul(x, constant(weights), out_dtype="int32"), data)


def integers(shape: tuple[int, ...], seed: int = 0, most: int = 1 << 15) -> np.ndarray:
    """Any that the type has, at both ends too."""
    made = np.random.default_rng(seed).integers(-most, most, shape).astype("int16")
    made.reshape(-1)[:1], made.reshape(-1)[1:2] = most - 1, 1 - most
    return made


@pytest.mark.parametrize("name", TARGETS)
def test_the_instruction_is_there(name):
    described, instruction, register = TARGETS[name]
    target = resolve_target(described)
    func = legalized_func(
        lambda x, w: OP.matmul(x, w, out_dtype="int32"), integers((32, 64)), integers((64, 64))
    )
    made = schedule(func, frozenset({1}), vdevice_for(target))
    assert made.origin == "matmul"
    (module,) = build_operators({"product": made.func}, target)
    lines = module.inspect_source("asm").splitlines()
    assert any(instruction in line and register in line for line in lines)
    assert not any("pmulld" in line or "pmullw" in line for line in lines)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 20),
    summed=st.integers(1, 40),
    columns=st.integers(1, 70),
    vdevice=st.sampled_from(VDEVICES),
    seed=st.integers(0, 9),
)
def test_sums_are_exact(rows, summed, columns, vdevice, seed):
    """Odd sums and few columns, which have no pairs or no vectors, too."""
    # The sum of forty largest products fits in 32 bits.
    weights = integers((summed, columns), seed, 1 << 10)
    data = integers((rows, summed), seed + 1)
    func = legalized_func(lambda x, w: OP.matmul(x, w, out_dtype="int32"), data, weights)
    run = run_prim_func(func, [data, weights], constants=(1,), vdevice=vdevice)
    wanted = data.astype("int64") @ weights.astype("int64")
    np.testing.assert_array_equal(run.outputs[0], wanted)


def test_pairs_of_the_least_integer():
    """The instruction's one product that 32 bits do not hold wraps around, as sums do."""
    least = np.full((4, 2), -(1 << 15), "int16")
    weights = np.full((2, 8), -(1 << 15), "int16")
    func = legalized_func(lambda x, w: OP.matmul(x, w, out_dtype="int32"), least, weights)
    (got,) = run_prim_func(func, [least, weights], constants=(1,)).outputs
    assert (got == np.int32(-(1 << 31))).all()


def test_a_marked_loop_of_another_form_stays_as_it_is():
    buffer = tirx.decl_buffer((8,), "int32", "sums")
    lane = tirx.Var("lane", "int64")
    body = tirx.BufferStore(buffer, buffer[lane] + lane.astype("int32"), [lane])
    bounds = (tirx.const(0, "int64"), tirx.const(8, "int64"))
    loop = tirx.For(lane, *bounds, tirx.ForKind.VECTORIZED, body, annotations={PAIRED: True})
    mod = tvm.IRModule({"main": tirx.PrimFunc([buffer], loop)})
    after = MultiplyPairs()(mod)["main"]
    assert [each.kind for each in collect(after.body, tirx.For)] == [tirx.ForKind.VECTORIZED]
