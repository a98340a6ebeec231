"""Sums of few terms on GPUs: what they compute, and which are left to other rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_models import Case, convolution, convolved, errors_by_rule, run_onnx
from emulated_cuda import run_emulated
from tvm import relax, te, tirx, topi

from tvm_rammer.backend.cuda.arch_target import LIMITS, target_of
from tvm_rammer.backend.cuda.codegen.region_kernels import with_inlined_bodies
from tvm_rammer.backend.cuda.made_stages import made_stages
from tvm_rammer.backend.cuda.short_sums import ShortSum
from tvm_rammer.kernel.blocks import schedule_of
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.testing.models.builder import GraphBuilder

OP = relax.op


def pooled(x: np.ndarray, how: Callable[..., Any], pad: float) -> np.ndarray:
    """Windows of 3 x 3 of rows of channels, padded by one."""
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=pad)
    _, height, width, _ = x.shape
    windows = [x[:, i : height - 2 + i, j : width - 2 + j] for i in range(3) for j in range(3)]
    return how(windows, axis=0)


#: Shapes, what they are for Relax, and for numpy.
CASES: dict[str, Case] = {
    "a maximum": (
        ((1, 9, 9, 24),),
        lambda x: OP.nn.max_pool2d(x, (3, 3), (1, 1), 1, layout="NHWC"),
        lambda x: pooled(x, np.max, -np.inf),
    ),
    "a mean": (
        ((2, 8, 8, 16),),
        lambda x: OP.nn.avg_pool2d(x, (3, 3), (1, 1), 1, layout="NHWC", count_include_pad=True),
        lambda x: pooled(x, np.mean, 0),
    ),
    "filters": (((1, 7, 7, 32), (32, 3, 3, 1)), convolution, convolved),
    "followed": (
        ((1, 7, 7, 32), (32, 3, 3, 1), (32,)),
        lambda x, w, b: OP.nn.relu(OP.add(convolution(x, w), b)),
        lambda x, w, b: np.maximum(convolved(x, w) + b, 0),
    ),
    "in another order": (
        ((1, 8, 8, 16), (16, 3, 3, 1)),
        lambda x, w: OP.permute_dims(convolution(x, w), (0, 3, 1, 2)),
        lambda x, w: convolved(x, w).transpose(0, 3, 1, 2),
    ),
    "truths": (
        ((1, 8, 8, 16), (16, 3, 3, 1)),
        lambda x, w: OP.astype(
            OP.logical_not(
                OP.logical_or(
                    OP.greater(convolution(x, w), relax.const(0.5, "float32")),
                    OP.less(convolution(x, w), relax.const(-0.5, "float32")),
                )
            ),
            "float32",
        ),
        lambda x, w: (np.abs(convolved(x, w)) <= 0.5).astype("float64"),
    ),
}


def errors(name: str, rule: ShortSum, dtype: str) -> tuple[list[float], set[str]]:
    return errors_by_rule(CASES[name], rule, dtype)


@pytest.mark.parametrize("rule", [ShortSum(64, 4), ShortSum(256, 1)])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_numpys(name, rule):
    found, origins = run_emulated(errors, name, rule, "float32")
    assert max(found) < 1e-6
    assert "shortsum" in origins


@pytest.mark.parametrize("name", ["a maximum", "followed"])
def test_halves_too(name):
    found, origins = run_emulated(errors, name, ShortSum(64, 4), "float16")
    assert max(found) < 1e-2
    assert "shortsum" in origins


def applies(rule: ShortSum, rows: int, terms: int, columns: int) -> bool:
    a = te.placeholder((rows, terms, columns), "float32")
    func = te.create_prim_func([a, topi.nn.relu(topi.sum(a, 1))])
    with target_of("sm_90") as target:
        return rule.apply(schedule_of(func).mod["main"], target, False) is not None


def test_many_terms_odd_columns_and_few_results_are_left_to_other_rules():
    assert applies(ShortSum(64, 4), 8, 128, 32)
    assert not applies(ShortSum(64, 4), 8, 129, 32)
    assert not applies(ShortSum(64, 4), 8, 16, 34)
    assert applies(ShortSum(64, 1), 8, 16, 34)
    assert not applies(ShortSum(64, 4), 7, 16, 32)


LOADS = """
  float4 condval;
  if ((2 <= x) && (f(x) < 34)) {
    condval = *(float4*)(p0 + ((x * 4) - 2112));
  } else {
    condval = make_float4(0x0p+0f/*0.0e+00*/, 0x0p+0f, 0x0p+0f, 0x0p+0f);
  }
  float condval_1;
  if (x < 3) {
    condval_1 = p1[(x + 1)];
  } else {
    condval_1 = -0x1.fffffep+127f/*-3.4e+38*/;
  }
"""
WITHOUT_BRANCHES = """
  float4 condval;
  condval = rammer_load_if((2 <= x) && (f(x) < 34), (const float4*)(p0 + ((x * 4) - 2112)), \
make_float4(0x0p+0f/*0.0e+00*/, 0x0p+0f, 0x0p+0f, 0x0p+0f));
  float condval_1;
  condval_1 = rammer_load_if(x < 3, (const float*)(p1 + (x + 1)), -0x1.fffffep+127f/*-3.4e+38*/);
"""


def test_loads_under_a_condition_have_no_branch():
    assert with_inlined_bodies(LOADS, 2) == WITHOUT_BRANCHES


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("p1[(x + 1)]", "shared[(x + 1)]"),
        ("p1[(x + 1)]", "__half2float(p1[(x + 1)])"),
        ("p1[(x + 1)]", "(p1[(x + 1)] + p2[x])"),
        ("-0x1.fffffep+127f/*-3.4e+38*/", "p2[x]"),
        ("float condval_1", "int condval_1"),
    ],
)
def test_other_values_under_a_condition_stay(old, new):
    text = LOADS.replace(old, new)
    assert text[text.index("condval_1;") :] in with_inlined_bodies(text, 2)


def test_few_threads_wait_for_all_of_their_loads():
    """Those of a block of fewer threads wait no less than each of a full one."""
    x, w = te.placeholder((1, 16, 16, 64)), te.placeholder((3, 3, 64))
    i, j = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    filtered = te.compute(
        (1, 14, 14, 64),
        lambda n, h, v, c: te.sum(x[n, h + i, v + j, c] * w[i, j, c], [i, j]),
    )
    func = te.create_prim_func([x, w, filtered])
    latencies = []
    with target_of("sm_90") as target:
        for threads in (64, 256):
            scheduled = schedule_of(ShortSum(threads, 4).apply(func, target, False).mod["main"])
            (time,) = made_stages(scheduled.mod["main"], target, LIMITS).times
            latencies.append(time.latency)
    assert latencies[0] == pytest.approx(latencies[1], rel=0.3)


@pytest.mark.parametrize(("window", "unrolled"), [((3, 3), 2), ((5, 5), 2), ((7, 7), 1)])
def test_loads_of_a_window_are_under_way_together(window, unrolled):
    """The loops of few terms are written out, so that no load waits for another's product."""
    x = te.placeholder((1, 16, 16, 64))
    i, j = (te.reduce_axis((0, size)) for size in window)
    largest = te.compute((1, 10, 10, 64), lambda n, h, v, c: te.max(x[n, h + i, v + j, c], [i, j]))
    with target_of("sm_90") as target:
        scheduled = ShortSum(64, 4).apply(te.create_prim_func([x, largest]), target, False)
    loops = collect(scheduled.mod["main"].body, tirx.For)
    assert [loop.kind for loop in loops].count(tirx.ForKind.UNROLLED) == unrolled


def errors_of_padding() -> dict[int, float]:
    """Integers and truths that are padded, and floats whose place an integer tells."""
    graph = GraphBuilder("padding")
    whole, real = graph.input("whole", (6, 8), "int32"), graph.input("real", (6, 8))
    sides = graph.constant([1, 2, 1, 2], "int64")
    graph.output("a", graph.op("Add", graph.op("Pad", whole, sides), graph.constant([3], "int32")))
    graph.output("b", graph.op("Not", graph.op("Greater", real, graph.constant([0.5]))))
    graph.output("c", graph.op("Relu", graph.op("Pad", real, sides)))
    return run_onnx(graph.build(), form="program", policy="wavefront", num_veus=3).errors


def test_what_is_padded_keeps_its_type():
    assert max(run_emulated(errors_of_padding).values()) < 1e-6
