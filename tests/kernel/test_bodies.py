"""Plans on numbers: any legal interleaving of the compiled bodies gives what the kernel gives."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from stress.compiled_regions import in_new_thread, same_bits, source_of
from tvm import tirx
from tvm.ir import PointerType, PrimType

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.errors import InputError
from tvm_rammer.kernel.bodies import compile_bodies
from tvm_rammer.rprogram import interpret_numeric, legal_interleavings

TARGET = resolve_target(None)
MODELS = ["recommender", "lstm_8x8x256", "resnext29_16x64d"]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """A model and its bodies as functions on arrays."""
    source = source_of(request.param)
    return source, compile_bodies(
        source.compiler.kernels.bodies, source.compiler.target, lowering_pipeline()
    )


@pytest.mark.parametrize("policy", ["sequential", "wavefront", "random1"])
def test_every_interleaving_agrees_with_the_kernel(model, policy):
    """Bit for bit, with three vEUs on the two workers of the compiled run."""
    source, bodies = model
    program = source.plan(policy, 3)
    inputs = source.inputs()
    want = in_new_thread(lambda: source.compile(program).run(inputs), workers=2)
    assert all(np.isfinite(array).all() for array in want)
    for order in islice(legal_interleavings(program, seed=5), 4):
        got = interpret_numeric(program, order, bodies, inputs, source.graph.constants)
        assert same_bits(got, want)


def test_no_bodies():
    assert compile_bodies({}, TARGET, lowering_pipeline()) == {}


def _increment(dtype: str, requirement: bool = False) -> tirx.PrimFunc:
    """A body by hand: element ``i`` becomes one more, where that is required to be positive."""
    start, stop, index = (tirx.Var(name, "int32") for name in ("start", "stop", "i"))
    pointer = tirx.Var("p0", PointerType(PrimType(dtype)))
    buffer = tirx.decl_buffer((8,), dtype, name="x")
    more = buffer[index] + tirx.const(1, dtype)
    step: Any = tirx.BufferStore(buffer, more, [index])
    if requirement:
        positive = buffer[index] > tirx.const(0, dtype)
        step = tirx.SeqStmt([tirx.AssertStmt(positive, "ValueError", ["not positive"]), step])
    loop = tirx.For(index, start, stop - start, tirx.ForKind.SERIAL, step)
    statements = [tirx.DeclBuffer(buffer, data=pointer), loop, tirx.Return(tirx.const(0, "int32"))]
    func = tirx.PrimFunc(
        [start, stop, pointer], tirx.SeqStmt(statements), ret_type=PrimType("int32")
    )
    return func.with_attrs({"tirx.is_scheduled": True, "s_tir": True})


@pytest.mark.parametrize("misaligned_by", [0, 4, 12])
def test_bodies_work_in_place_whatever_the_alignment(misaligned_by):
    memory = np.zeros(256, np.uint8)
    start = -memory.ctypes.data % 64 + misaligned_by
    array = memory[start : start + 32].view("float32")
    body = compile_bodies({"increment": _increment("float32")}, TARGET, lowering_pipeline())[
        "increment"
    ]
    body(2, 5, [array])
    np.testing.assert_array_equal(array, [0, 0, 1, 1, 1, 0, 0, 0])
    body(0, 0, [array])
    body(4, 8, [array.reshape(2, 4)])
    np.testing.assert_array_equal(array, [0, 0, 1, 1, 2, 1, 1, 1])


def test_a_body_that_fails_raises():
    """The error names the rKernel."""
    body = compile_bodies(
        {"strict": _increment("int32", requirement=True)}, TARGET, lowering_pipeline()
    )["strict"]
    array = np.array([1, 2, 0, 4, 5, 6, 7, 8], "int32")
    body(0, 2, [array])
    with pytest.raises(RuntimeError, match=r"^strict: an rTask failed"):
        body(0, 8, [array])
    body(3, 8, [array])


def test_rows_may_lie_apart():
    """A body runs from the first element on; what is between the rows is within its reach."""
    memory = np.zeros((4, 8), "float32")
    body = compile_bodies({"increment": _increment("float32")}, TARGET, lowering_pipeline())[
        "increment"
    ]
    body(0, 8, [memory[1:3, 2:6]])
    np.testing.assert_array_equal(np.flatnonzero(memory), np.arange(10, 18))


@pytest.mark.parametrize(
    ("array", "strides"),
    [
        (np.zeros((8, 4), "float32").T, "(4, 16)"),
        (np.zeros(8, "float32")[::-1], "(-4,)"),
        (np.broadcast_to(np.zeros(8, "float32"), (2, 8)), "(0, 4)"),
    ],
)
def test_arrays_that_are_not_row_major_are_refused(array, strides):
    body = compile_bodies({"increment": _increment("float32")}, TARGET, lowering_pipeline())[
        "increment"
    ]
    with pytest.raises(InputError) as caught:
        body(0, 8, [array])
    assert str(caught.value) == (
        f"an rTask body cannot run on an array with strides {strides}; pass a row-major one"
    )
