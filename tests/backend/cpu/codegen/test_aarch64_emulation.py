"""Code for AArch64 in an emulated processor: bodies, whole programs, and what they must not do."""

from __future__ import annotations

import numpy as np
import pytest
from aarch64_emulation import call_packed, emulated_bodies, processor_of
from aarch64_processor import EmulationError
from kernel_runs import ARM, HOST, numbers, run_relax, target_of
from stress.compiled_regions import Source, aligned_copy, tiny_model
from tvm import relax, tirx
from tvm.ir import PointerType, PrimType

from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.kernel.bodies import Body
from tvm_rammer.region.compiler import signature_of
from tvm_rammer.testing.reference import relative_error

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


@pytest.mark.parametrize("name", ["lstm_8x8x256", "recommender", "squeezenet", "bert_base"])
def test_whole_programs(name):
    """Entry, waits, dispatchers and bodies, on one worker, for several vEUs, in any plan."""
    source, host = (Source.of_module(tiny_model(name), each) for each in (target_of(ARM), None))
    want = host.compile(host.plan("sequential", 1)).run(host.inputs())
    signature = signature_of(source.graph.graph)
    processor = processor_of(source.compiler.module((signature,)))
    for policy, num_veus in (("sequential", 1), ("wavefront", 2), ("random3", 3)):
        program = source.plan(policy, num_veus)
        code = source.compiler.backend.encode(program, signature, source.ids, False)
        outputs = [aligned_copy(np.full(s.shape, np.nan, s.dtype)) for s in signature.outputs]
        memory = [
            aligned_copy(source.graph.constants),
            aligned_copy(code.table),
            *outputs,
            aligned_copy(np.full(code.arena_bytes, 0xFF, np.uint8)),
        ]
        call_packed(processor, signature.name, *source.inputs(), *memory)
        for found, expected in zip(outputs, want, strict=True):
            assert relative_error(found, expected) < 1e-5
