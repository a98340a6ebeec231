"""Operators on GPUs have a schedule that is efficient and one that is fast, and plans choose."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
import tvm
from cuda_models import TARGET, outputs, worst
from emulated_cuda import ORDERS, edited, looking_for_races, run_emulated
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from tvm import te, topi

import tvm_rammer
from tvm_rammer.backend.cuda.arch_target import LIMITS, costs_of, target_of, vdevice_of
from tvm_rammer.backend.cuda.block_tilings import BlockReduction, SplitSum
from tvm_rammer.backend.cuda.cuda_backend import CudaBackend
from tvm_rammer.backend.cuda.made_stages import made_stages
from tvm_rammer.backend.cuda.schedules import schedule
from tvm_rammer.kernel.blocks import schedule_of
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.reference import random_inputs

TOLERANCE = 1e-4


def product(m: int, k: int, n: int) -> tvm.tirx.PrimFunc:
    a, b = te.placeholder((m, k), "float32"), te.placeholder((k, n), "float32")
    return te.create_prim_func([a, b, topi.nn.relu(topi.nn.matmul(a, b))])


def convolution(size: int, channels: int, kernel: int) -> tvm.tirx.PrimFunc:
    a = te.placeholder((1, size, size, channels), "float32")
    b = te.placeholder((kernel, kernel, channels, channels), "float32")
    result = topi.nn.conv2d_nhwc(a, b, 1, kernel // 2, 1)
    return te.create_prim_func([a, b, topi.nn.relu(result)])


def pooling() -> tvm.tirx.PrimFunc:
    a = te.placeholder((1, 30, 30, 64), "float32")
    result = topi.nn.pool2d(a, (3, 3), (1, 1), (1, 1), (0, 0, 0, 0), "max", layout="NHWC")
    return te.create_prim_func([a, result])


def figures(scheduled: Scheduled) -> list[tuple[int, float]]:
    """Tiles and seconds of a tile, as an rTask, of each variant, which have one stage."""
    made = [made_stages(v.func, target_of("sm_90"), LIMITS) for v in scheduled.variants()]
    row = costs_of("sm_90").row
    return [(m.split.stages[0].num_tiles, m.split.stages[0].tile_seconds + row) for m in made]


def on_device(func: tvm.tirx.PrimFunc, num_veus: int) -> list[tuple[int, float]]:
    return figures(schedule(func, vdevice_of(target_of("sm_90"), num_veus), LIMITS))


@pytest.mark.parametrize(
    ("func", "count"),
    [
        (product(1, 512, 512), 1),
        (product(2, 1152, 50), 2),
        (product(64, 256, 64), 3),
        (convolution(16, 64, 3), 3),
    ],
    ids=["gemv", "few rows", "matmul", "conv"],
)
def test_the_efficient_schedule_is_first_and_the_fast_one_last(func, count):
    found = on_device(func, 264)
    assert len(found) == count
    for (tiles, seconds), (more, fewer_seconds) in pairwise(found):
        assert tiles * seconds < 0.8 * more * fewer_seconds
        assert more > tiles and fewer_seconds < 0.8 * seconds


def test_one_block_has_no_choice_to_make():
    ((tiles, seconds),) = on_device(product(64, 256, 64), 1)
    count, each = on_device(product(64, 256, 64), 264)[0]
    assert tiles * seconds < 1.25 * count * each


def test_what_has_the_device_for_itself_takes_the_fast_schedule():
    vdevice = vdevice_of(target_of("sm_90"), 264)
    scheduled = schedule(product(64, 256, 64), vdevice, LIMITS)
    assert figures(CudaBackend().alone(scheduled)) == figures(scheduled)[-1:]


@pytest.mark.parametrize("rule", [SplitSum(8, 32, terms_apart=True), BlockReduction()])
@pytest.mark.parametrize(("transposed", "taken"), [(True, True), (False, False)])
def test_threads_share_terms_only_where_they_lie_side_by_side(rule, transposed, taken):
    """Of the larger operand, which has its terms in columns unless it is transposed."""
    a = te.placeholder((2, 64), "float32")
    b = te.placeholder((64, 64), "float32")
    result = topi.nn.relu(topi.matmul(a, b, False, transposed))
    func = schedule_of(te.create_prim_func([a, b, result])).mod["main"]
    with target_of("sm_90") as target:
        assert (rule.apply(func, target, False) is not None) is taken


def launched_alone() -> list[str]:
    """The grids of operators that are launched one by one."""
    graph = GraphBuilder("alone")
    x = graph.input("x", (64, 256))
    graph.output("y", graph.op("MatMul", x, graph.weight((256, 64), 0.1)))
    texts: list[str] = []
    with edited(lambda source: texts.append(source) or source):
        tvm_rammer.build(graph.build(), TARGET, form="per-op", policy="sequential")
    return [text for text in texts if "atmul" in text]


def test_operators_one_by_one_take_the_fast_schedule():
    """Slices of the terms are added up; tiles of whole sums would be few."""
    (text,) = run_emulated(launched_alone)
    assert "rf_shared" in text


def test_a_block_for_every_result_is_not_taken_for_a_pool():
    """A rule of dlight's would: 50,176 blocks, of whose 256 threads 9 have something to add."""
    ((tiles, _),) = on_device(pooling(), 264)
    assert tiles == 28 * 28 * 64 // (4 * LIMITS.threads)


def one_of_each() -> ModelProto:
    """Products, of which three have two schedules, and what moves data between them."""
    graph = GraphBuilder("candidates")
    x = graph.input("x", (1, 32, 6, 6))
    y = graph.op("Relu", graph.op("Conv", x, graph.weight((48, 32, 3, 3), 0.1), pads=[1] * 4))
    y = graph.op("Relu", graph.op("Conv", y, graph.weight((32, 48, 1, 1), 0.1)))
    rows = graph.op("Reshape", y, graph.constant([36, 32], "int64"))
    graph.output("a", graph.op("MatMul", rows, graph.weight((32, 70), 0.2)))
    flat = graph.op("Flatten", y, axis=1)
    graph.output("b", graph.op("Sigmoid", graph.op("Gemm", flat, graph.weight((1152, 50), 0.05))))
    return graph.build()


def errors(counts: Iterable[int]) -> tuple[list[float], list[set[str]]]:
    """The worst error on so many vEUs, and the kernels that were chosen."""
    model = one_of_each()
    inputs = random_inputs(model)
    expected = ReferenceEvaluator(model).run(None, inputs)
    compiled: list[str] = []
    with looking_for_races(), edited(lambda source: compiled.append(source) or source):
        library = tvm_rammer.build(model, TARGET, policy="wavefront")
    plans = [library.replan("wavefront", num_veus=count) for count in counts]
    assert len(compiled) == 1
    found = [
        max(worst(outputs(plan, inputs, order), expected) for order in ORDERS) for plan in plans
    ]
    kernels = [{k.name for p in plan.programs.values() for k in p.kernels} for plan in plans]
    return found, kernels


def test_plans_take_what_suits_their_size_and_compute_the_same():
    (few_error, many_error), (few, many) = run_emulated(errors, (1, 96))
    assert max(few_error, many_error) < TOLERANCE
    assert len(few - many) == len(many - few) == 3
