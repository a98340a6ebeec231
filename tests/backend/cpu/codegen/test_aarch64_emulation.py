"""The emulated processor runs what kernels are made of, and finds what they must not do."""

from __future__ import annotations

import numpy as np
import pytest
from aarch64_emulation import EmulationError, emulated_bodies
from kernel_runs import ARM, HOST, numbers, run_relax, target_of
from tvm import relax, tirx
from tvm.ir import PointerType, PrimType

from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.kernel.bodies import Body

OP = relax.op


def body_of(func: tirx.PrimFunc) -> Body:
    return emulated_bodies({"it": func}, target_of(ARM), lowering_pipeline())["it"]


def doubled() -> tirx.PrimFunc:
    """A body by hand: its tiles are elements, each twice what is given."""
    start, stop, index = (tirx.Var(name, "int32") for name in ("start", "stop", "i"))
    pointers = [tirx.Var(name, PointerType(PrimType("float32"))) for name in ("p0", "p1")]
    given, result = (tirx.decl_buffer((8,), "float32", name=name) for name in ("x", "y"))
    store = tirx.BufferStore(result, given[index] * tirx.const(2, "float32"), [index])
    loop = tirx.For(index, start, stop - start, tirx.ForKind.SERIAL, store)
    statements = [
        tirx.DeclBuffer(given, data=pointers[0]),
        tirx.DeclBuffer(result, data=pointers[1]),
        loop,
        tirx.Return(tirx.const(0, "int32")),
    ]
    func = tirx.PrimFunc(
        [start, stop, *pointers], tirx.SeqStmt(statements), ret_type=PrimType("int32")
    )
    return func.with_attrs({"tirx.is_scheduled": True, "s_tir": True})


def test_a_body_runs_in_the_memory_of_its_arrays():
    x, y = numbers((8,)), np.zeros(8, "float32")
    body_of(doubled())(2, 5, [x, y])
    np.testing.assert_array_equal(y, np.where((np.arange(8) >= 2) & (np.arange(8) < 5), 2 * x, 0))


def test_what_reads_another_page_ends_with_an_error():
    x, y = numbers((8,)), np.zeros(8, "float32")
    with pytest.raises(EmulationError, match="Invalid memory read"):
        body_of(doubled())(1 << 20, (1 << 20) + 1, [x, y])


def test_the_same_numbers_as_on_this_machine():
    """Products differ by the order of their sums alone, which vectors of other widths change."""
    x, weights = numbers((5, 37)), numbers((37, 19), seed=1)
    (emulated,), _ = run_relax(lambda a, b: OP.nn.gelu(OP.matmul(a, b)), x, weights, vdevice=ARM)
    (here,), _ = run_relax(lambda a, b: OP.nn.gelu(OP.matmul(a, b)), x, weights, vdevice=HOST)
    np.testing.assert_allclose(emulated, here, rtol=1e-5, atol=1e-5)
