"""Jobs compute what their bodies compute, however often and on however many copies they run."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from close import assert_close
from tvm import relax, tirx

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.cpu.host.one_core import on_one_core
from tvm_rammer.backend.cpu.timing.kernel_timing import Job, Step, compile_jobs
from tvm_rammer.kernel.operands import Operand
from tvm_rammer.region.kernel_library import KernelLibrary

TARGET = resolve_target()
HOST = vdevice_for(TARGET)
SHAPE = (6, 40)


@pytest.fixture(scope="module")
def softmax():
    """A job of every stage that softmax has, and one of relu."""
    library = KernelLibrary(HOST)
    jobs = tuple(_job(library, operator) for operator in (relax.op.nn.softmax, relax.op.nn.relu))
    return compile_jobs(jobs, library.bodies, TARGET)


def _job(library, operator):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(operator(x)))
    with TARGET:
        mod = relax.transform.LegalizeOps()(builder.get())
        (func,) = (f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc))
        kernel = library.get(func, frozenset())
    operands = [Operand(SHAPE, "float32")] * 2
    operands += [Operand(scratch.shape, scratch.dtype) for scratch in kernel.scratch]
    steps = (Step(s.kernel.name, s.kernel.num_tiles, s.arguments) for s in kernel.stages)
    return Job(tuple(steps), tuple(operands))


@pytest.mark.parametrize("copies", [1, 3])
def test_every_copy_is_computed(softmax, copies):
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    memory = softmax.memory(0, {0: x}, copies)
    softmax.run(0, memory, repeats=copies, copies=copies)
    exponentials = np.exp(x - x.max(1, keepdims=True))
    want = exponentials / exponentials.sum(1, keepdims=True)
    for copy in range(copies):
        assert_close(softmax.operand(0, 1, memory, copy), want, 1e-6)


def test_a_copy_whose_turn_does_not_come_stays_as_it_is(softmax):
    memory = softmax.memory(1, {0: np.full(SHAPE, -1, np.float32), 1: np.ones(SHAPE)}, copies=3)
    softmax.run(1, memory, repeats=2, copies=3)
    results = [softmax.operand(1, 1, memory, copy) for copy in range(3)]
    assert [result.min() for result in results] == [0, 0, 1]
    assert [result.max() for result in results] == [0, 0, 1]


def test_a_timing_is_a_time(softmax):
    memory = softmax.memory(0, copies=2)
    timing = on_one_core(lambda: softmax.time(0, memory, 2, run_seconds=1e-4, total_seconds=1e-3))
    assert 1e-9 < timing.seconds < 1
    assert timing.spread >= 0


def test_the_code_of_each_job_is_in_functions_of_its_name(softmax):
    code = softmax.module.inspect_source("ll")
    assert "job_0" in code and "job_1" in code


def test_integers_start_as_zero_and_floats_as_numbers():
    """Zero is an index that every table has; a product of zeros may be faster than others."""
    operands = (Operand((3,), "int64"), Operand((5,), "float32"), Operand((2,), "bfloat16"))
    (job,) = (Job((), operands),)
    memory = compile_jobs((job,), {}, TARGET).memory(0)
    module = compile_jobs((job,), {}, TARGET)
    assert module.operand(0, 0, memory).tolist() == [0, 0, 0]
    assert module.operand(0, 1, memory).tolist() == [0.5] * 5
    assert module.operand(0, 2, memory).dtype == np.uint16
    assert job.offsets == (0, 64, 128, 192)


def test_one_core_is_a_thread_of_its_own():
    """The caller's thread keeps its CPUs, and gets what was raised."""
    import os

    before = os.sched_getaffinity(0)
    assert on_one_core(lambda: os.sched_getaffinity(0)) == {host_cpu().cpus[0]}
    assert os.sched_getaffinity(0) == before
    with pytest.raises(ZeroDivisionError):
        on_one_core(lambda: 1 / 0)


def test_a_failing_body_is_an_error():
    start, stop = tirx.Var("start", "int32"), tirx.Var("stop", "int32")
    pointer = tirx.Var("p0", tvm.ir.PointerType(tvm.ir.PrimType("float32")))
    strict = tirx.AssertStmt(stop < 2, "ValueError", ["too many tiles"])
    steps = tirx.SeqStmt([strict, tirx.Return(tirx.const(0, "int32"))])
    body = tirx.PrimFunc([start, stop, pointer], steps, ret_type=tvm.ir.PrimType("int32"))
    body = body.with_attrs({"tirx.is_scheduled": True, "s_tir": True})
    jobs = tuple(Job((Step("strict", n, (0,)),), (Operand((4,), "float32"),)) for n in (1, 2))
    compiled = compile_jobs(jobs, {"strict": body}, TARGET)
    compiled.run(0, compiled.memory(0))
    with pytest.raises(RuntimeError, match="an rTask failed"):
        compiled.run(1, compiled.memory(1))
