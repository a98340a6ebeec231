"""Reductions whose terms threads share, on GPUs: where they start, and where they are written."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import tvm
from cuda_models import TARGET, outputs
from emulated_cuda import run_emulated
from tvm import s_tir, te, tirx
from tvm.s_tir import dlight

import tvm_rammer
from tvm_rammer.backend.cuda import schedules
from tvm_rammer.backend.cuda.arch_target import target_of
from tvm_rammer.backend.cuda.reducers import with_kept_conditions
from tvm_rammer.kernel.blocks import schedule_of
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.testing.models.builder import GraphBuilder


def column(rows: int) -> tirx.PrimFunc:
    """A matrix of five columns times a vector; dlight has eight results in a block."""
    a, b = te.placeholder((rows, 5), "float32"), te.placeholder((5,), "float32")
    k = te.reduce_axis((0, 5), "k")
    return te.create_prim_func([a, b, te.compute((rows,), lambda i: te.sum(a[i, k] * b[k], k))])


def written_under(func: tirx.PrimFunc) -> str:
    """The condition under which TVM writes the sums of a scheduled PrimFunc."""
    with target_of("sm_90"):
        lowered = s_tir.transform.LowerCrossThreadReduction()(tvm.IRModule({"main": func}))
    (written,) = (
        each
        for each in collect(lowered["main"].body, s_tir.SBlockRealize)
        if each.block.name_hint.endswith("write_back")
    )
    return str(written.predicate)


def test_what_is_written_exists():
    target = target_of("sm_90")
    with target:
        given = dlight.gpu.GEMV().apply(schedule_of(column(5)).mod["main"], target, False)
    func = given.mod["main"]
    # If TVM asks for the result itself, nothing needs to be done.
    assert "< 5" not in written_under(func)
    assert "< 5" in written_under(with_kept_conditions(func))
    answers = dict(schedules._answers(column(5), target, schedules._rules()))
    assert "< 5" in written_under(answers["gemv"])


def extrema() -> list[np.ndarray]:
    """Of rows of infinities, with 4 and with 400 elements."""
    graph = GraphBuilder("extrema")
    for width in (4, 400):
        x = graph.input(f"x{width}", (3, width))
        graph.output(f"largest{width}", graph.op("ReduceMax", x, axes=[1], keepdims=0))
        graph.output(f"least{width}", graph.op("ReduceMin", x, axes=[1], keepdims=0))
    library = tvm_rammer.build(graph.build(), TARGET, policy="wavefront", num_veus=3)
    rows = {w: np.array([[-np.inf], [np.inf], [2.0]], "float32").repeat(w, 1) for w in (4, 400)}
    return outputs(library, {f"x{width}": row for width, row in rows.items()})


def test_extrema_of_infinities_are_infinite():
    for result in run_emulated(extrema):
        np.testing.assert_array_equal(result, [-np.inf, np.inf, 2.0])


def test_reductions_that_tvm_is_told_of_do_not_outlive_it():
    program = "from tvm_rammer.backend.cuda.reducers import know_infinite_starts as k; k(); k()"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
