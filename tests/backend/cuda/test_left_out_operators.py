"""An operator that no resident block can run is left out of the plan, with the reason, and runs by
itself as it was scheduled.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from cuda_models import TARGET, outputs
from emulated_cuda import run_emulated
from tvm import relax, tirx
from tvm.s_tir import Schedule

import tvm_rammer
from tvm_rammer.testing.reference import relative_error

WANTED = {
    "wide": "a kernel for CUDA wants blocks of 512 threads, and a plan has 256",
    "large": (
        "a kernel for CUDA wants 45,056 bytes of shared memory, and a resident block has 40,960"
    ),
}


def doubled(threads: int, shared: int) -> tirx.PrimFunc:
    """Doubles numbers in blocks that want so many threads and floats of shared memory."""
    extent = 11264
    x = tvm.te.placeholder((extent,), "float32", "x")
    near = tvm.te.compute((extent,), lambda i: x[i] * 2.0, "near")
    y = tvm.te.compute((extent,), lambda i: near[i] + 0.0, "y")
    schedule = Schedule(tvm.te.create_prim_func([x, y]))
    block, copy = schedule.get_sblock("y"), schedule.get_sblock("near")
    outer, inner = schedule.split(schedule.get_loops(block)[0], [None, shared])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(schedule.split(inner, [None, threads])[1], "threadIdx.x")
    schedule.set_scope(copy, 0, "shared")
    schedule.compute_at(copy, outer)
    schedule.bind(schedule.split(schedule.get_loops(copy)[-1], [None, threads])[1], "threadIdx.x")
    # An opaque one is fused with nothing.
    return (
        schedule.mod["main"]
        .with_attrs({"tirx.is_scheduled": True, "op_pattern": 8})
        .without_attr("global_symbol")
    )


def model(func: tirx.PrimFunc) -> tvm.IRModule:
    """Four operators, the second of which is scheduled already."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((11264,), "float32"))
    with builder.function("main", [x]):
        symbol = builder.add_func(func, "given")
        with builder.dataflow():
            before = builder.emit(relax.op.exp(x))
            other = builder.emit(relax.op.tanh(x))
            given = builder.emit(relax.call_tir(symbol, [before], x.ty))
            result = builder.emit_output(relax.op.add(relax.op.sigmoid(given), other))
        builder.emit_func_output(result)
    return builder.get()


def run(threads: int, shared: int) -> tuple[list[tuple[str, str]], float]:
    library = tvm_rammer.build(model(doubled(threads, shared)), TARGET, num_veus=4)
    x = np.random.default_rng(0).standard_normal(11264).astype("float32")
    expected = 1 / (1 + np.exp(-2 * np.exp(x))) + np.tanh(x)
    got = outputs(library, {"x": x})[0]
    reasons = [(item.operator, item.reason) for item in library.report.left_out]
    return reasons, relative_error(got, expected)


@pytest.mark.parametrize(("why", "threads", "shared"), [("wide", 512, 512), ("large", 256, 11264)])
def test_what_exceeds_a_block_is_left_out_and_runs_by_itself(why, threads, shared):
    reasons, error = run_emulated(run, threads, shared)
    assert ("given", WANTED[why]) in reasons
    assert error < 1e-5


def test_what_fits_is_planned():
    reasons, error = run_emulated(run, 256, 1024)
    assert reasons == []
    assert error < 1e-5


def windows(x: relax.Expr) -> relax.Expr:
    """Windows of one, two or three elements, whose sums have loops of their own."""
    images = relax.op.reshape(relax.op.exp(x), (2, 11, 11, 8))
    pooled = relax.op.nn.adaptive_avg_pool2d(images, (7, 7), layout="NHWC")
    return relax.op.nn.softmax(relax.op.reshape(pooled, (14, 56)))


def scatter(x: relax.Expr) -> relax.Expr:
    """TVM writes it for GPUs with threads of its own."""
    rows = relax.op.reshape(relax.op.exp(x), (44, 44))
    places = relax.op.astype(relax.op.argmax(rows, 1), "int64")
    updates = relax.op.negative(relax.op.reshape(rows, (44, 44)))
    made = relax.op.scatter_nd(rows, relax.op.reshape(places, (44, 1)), updates, "update")
    return relax.op.nn.softmax(made)


def run_operators(name: str) -> tuple[list[tuple[str, str]], float]:
    """What is left out of a plan for a GPU, and how far its results are from a processor's."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1936,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(globals()[name](x)))
        builder.emit_func_output(result)
    data = np.random.default_rng(0).standard_normal(1936).astype("float32")
    library = tvm_rammer.build(builder.get(), TARGET, num_veus=4)
    got = outputs(library, {"x": data})[0]
    expected = tvm_rammer.build(builder.get(), policy="sequential").create()(data)[0].numpy()
    reasons = [(item.operator, item.reason) for item in library.report.left_out]
    return reasons, relative_error(got, expected)


@pytest.mark.parametrize(
    ("name", "operator", "reason"),
    [
        ("windows", "adaptive_avg_pool2d", "no rule of TVM schedules it"),
        ("scatter", "scatter_nd", "a kernel for CUDA binds threadIdx.x inside of a loop"),
    ],
)
def test_what_no_rule_schedules_is_left_out(name, operator, reason):
    reasons, error = run_emulated(run_operators, name)
    assert (operator, reason) in reasons
    assert error < 1e-5
