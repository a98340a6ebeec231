"""Splitting a PrimFunc into stages: one per loop nest, with scratch buffers between them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from close import assert_close
from kernel_runs import TARGET, legalized_func, numbers, run_prim_func
from tvm import relax, te, topi
from tvm.script import tirx as T

from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.bodies import compile_bodies
from tvm_rammer.kernel.split import split_into_stages

OP = relax.op
X = numbers((4, 16))
#: Half precision keeps a loop nest for each step of a reduction.
HALF = numbers((4, 16), "float16")


def test_a_stage_for_each_loop_nest():
    """Softmax: maximum, sum, quotient; each reads what the ones before wrote."""
    run = run_prim_func(legalized_func(lambda x: OP.nn.softmax(x, 1), HALF), [HALF])
    stages = run.kernel.stages
    assert [stage.arguments for stage in stages] == [(0, 2), (0, 2, 3), (0, 1, 2, 3)]
    assert [stage.kernel.modes for stage in stages] == [
        ("read", "write"),
        ("read", "read", "write"),
        ("read", "write", "read", "read"),
    ]
    assert [item.shape for item in run.kernel.scratch] == [(4,), (4,)]
    assert {item.dtype for item in run.kernel.scratch} == {"float16"}


def test_several_results():
    """A PrimFunc with three results, of other shapes and dtypes."""
    a = te.placeholder((4, 16), name="a")
    twice = topi.multiply(a, 2.0)
    total, best = topi.sum(a, axis=1), topi.argmax(a, axis=1)
    run = run_prim_func(te.create_prim_func([a, twice, total, best]), [X])
    for got, want in zip(run.outputs, [X * 2, X.sum(1), X.argmax(1)], strict=True):
        assert_close(got, want)


def test_a_result_that_is_read_again():
    """The second stage reads the first one's result, which is an output too."""
    a = te.placeholder((4, 16), "float16", name="a")
    highest = topi.max(a, axis=1, keepdims=True)
    run = run_prim_func(te.create_prim_func([a, highest, topi.subtract(a, highest)]), [HALF])
    assert_close(run.outputs[1], HALF - HALF.max(1, keepdims=True))
    assert run.kernel.scratch == ()
    assert len(run.kernel.stages) == 2


@T.prim_func(s_tir=True)
def written_by_two_nests(x: T.Buffer((4, 16), "float32"), out: T.Buffer((4, 32), "float32")):
    for i, j in T.grid(4, 16):
        with T.sblock("left"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj] = x[vi, vj] * T.float32(2)
    for i, j in T.grid(4, 16):
        with T.sblock("right"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj + 16] = x[vi, vj] + T.float32(1)


def test_nests_that_write_one_buffer_stay_together():
    """A buffer has one producer: such nests become one stage of one tile."""
    run = run_prim_func(written_by_two_nests, [X])
    assert_close(run.outputs[0], np.concatenate([X * 2, X + 1], 1))
    assert run.tiles == [1]
    assert not has_parallel_loops(run)


@T.prim_func(s_tir=True)
def with_buffers_of_their_own(x: T.Buffer((4, 16), "float32"), out: T.Buffer((4, 16), "float32")):
    kept = T.alloc_buffer((4, 16), "float32")
    for i in T.parallel(4):
        twice = T.alloc_buffer((16,), "float32")
        for j in range(16):
            twice[j] = x[i, j] * T.float32(2)
        for j in range(16):
            kept[i, j] = twice[15 - j]
    for i in T.parallel(4):
        more = T.alloc_buffer((16,), "float32")
        for j in range(16):
            more[j] = kept[3 - i, j] + T.float32(1)
        for j in range(16):
            out[i, j] = more[j]


def test_nests_that_write_buffers_of_their_own_stay_apart():
    """What a tile keeps to itself joins no stages."""
    run = run_prim_func(with_buffers_of_their_own, [X])
    assert_close(run.outputs[0], X[::-1, ::-1] * 2 + 1)
    assert run.tiles == [4, 4]


@T.prim_func(s_tir=True)
def written_twice_then_read(x: T.Buffer((4, 16), "float32"), out: T.Buffer((4, 16), "float32")):
    kept = T.sblock_alloc_buffer((2, 4, 16), "float32")
    for i, j in T.grid(4, 16):
        with T.sblock("first"):
            vi, vj = T.axis.remap("SS", [i, j])
            kept[0, vi, vj] = x[vi, vj] * T.float32(2)
    for i, j in T.grid(4, 16):
        with T.sblock("second"):
            vi, vj = T.axis.remap("SS", [i, j])
            kept[1, vi, vj] = x[vi, vj] + T.float32(1)
    for i, j in T.grid(4, 16):
        with T.sblock("out"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj] = kept[0, vi, vj] - kept[1, 3 - vi, vj]


def test_only_nests_that_write_one_buffer_stay_together():
    """The nest that reads the buffer keeps its tiles."""
    run = run_prim_func(written_twice_then_read, [X])
    assert_close(run.outputs[0], X * 2 - (X + 1)[::-1])
    assert run.tiles == [1, 4]


def test_a_nest_of_one_tile_keeps_its_accumulators():
    """Where the tile loop has one iteration, what is local to the tile stays local."""
    w = numbers((16, 16))
    run = run_prim_func(legalized_func(OP.matmul, X, w), [X, w])
    assert_close(run.outputs[0], X @ w)
    assert (run.origin, run.tiles, run.kernel.scratch) == ("matmul", [1], ())


@T.prim_func(s_tir=True)
def every_other_row(x: T.Buffer((4, 16), "float32"), out: T.Buffer((4, 16), "float32")):
    with T.sblock("by_hand"):
        T.reads(x[0:4, 0:16])
        T.writes(out[0:4, 0:16])
        for i in T.parallel(0, 4, step=2):
            for j in range(16):
                out[i, j] = x[i, j]
                out[i + 1, j] = -x[i, j]


def test_tile_loops_with_a_step():
    run = run_prim_func(every_other_row, [X])
    assert_close(run.outputs[0], np.stack([X[0], -X[0], X[2], -X[2]]))
    assert run.tiles == [2]


@T.prim_func(s_tir=True)
def two_blocks_in_one_nest(
    x: T.Buffer((4, 16), "float32"),
    twice: T.Buffer((4, 16), "float32"),
    more: T.Buffer((4, 16), "float32"),
):
    for i, j in T.grid(4, 16):
        with T.sblock("twice"):
            vi, vj = T.axis.remap("SS", [i, j])
            twice[vi, vj] = x[vi, vj] * T.float32(2)
        with T.sblock("more"):
            vi, vj = T.axis.remap("SS", [i, j])
            more[vi, vj] = twice[vi, vj] + T.float32(1)


def test_two_blocks_in_one_nest():
    run = run_prim_func(two_blocks_in_one_nest, [X])
    assert_close(run.outputs[0], X * 2)
    assert_close(run.outputs[1], X * 2 + 1)
    assert len(run.kernel.stages) == 1


@T.prim_func(s_tir=True)
def shared_scalar(
    x: T.Buffer((4, 16), "float32"),
    plus: T.Buffer((4, 16), "float32"),
    times: T.Buffer((4, 16), "float32"),
):
    with T.sblock("by_hand"):
        T.reads(x[0:4, 0:16])
        T.writes(plus[0:4, 0:16], times[0:4, 0:16])
        first: T.let[T.float32] = x[0, 0]
        for i in T.parallel(4):
            for j in range(16):
                plus[i, j] = x[i, j] + first
        for i in T.parallel(4):
            for j in range(16):
                times[i, j] = x[i, j] * first


def test_nests_that_share_a_scalar_stay_together():
    run = run_prim_func(shared_scalar, [X])
    assert_close(run.outputs[0], X + X[0, 0])
    assert_close(run.outputs[1], X * X[0, 0])
    assert run.tiles == [1]
    assert not has_parallel_loops(run)


@T.prim_func(s_tir=True)
def parallel_inside(x: T.Buffer((4, 16), "float32"), out: T.Buffer((4, 16), "float32")):
    with T.sblock("by_hand"):
        T.reads(x[0:4, 0:16])
        T.writes(out[0:4, 0:16])
        for i in T.parallel(1, 4):
            for j in T.parallel(16):
                out[i, j] = x[i, j] + T.float32(1)
        for j in T.parallel(16):
            out[0, j] = x[0, j]


def test_parallel_loops_become_serial():
    """A body runs on one vEU: a launch inside of a launch would be an error."""
    run = run_prim_func(parallel_inside, [X])
    assert_close(run.outputs[0], np.concatenate([X[:1], X[1:] + 1]))
    assert not has_parallel_loops(run)


@T.prim_func(s_tir=True)
def scratch_by_another_name(x: T.Buffer((4, 16), "float32"), out: T.Buffer((64,), "float32")):
    kept = T.sblock_alloc_buffer((4, 16), "float32")
    for i, j in T.grid(4, 16):
        with T.sblock("kept"):
            vi, vj = T.axis.remap("SS", [i, j])
            kept[vi, vj] = x[vi, vj] * T.float32(2)
    with T.sblock("by_hand"):
        T.reads(kept[0:4, 0:16])
        T.writes(out[0:64])
        flat = T.decl_buffer((64,), "float32", data=kept.data)
        for i in range(64):
            out[i] = flat[63 - i]


def test_a_second_view_of_scratch():
    run = run_prim_func(scratch_by_another_name, [X])
    assert_close(run.outputs[0], (X * 2).reshape(-1)[::-1])
    assert [stage.arguments for stage in run.kernel.stages] == [(0, 2), (1, 2)]


def test_scratch_of_one_stage_is_no_argument():
    """What only one stage uses stays inside of it; the others are numbered without it."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((4, 16), "float16"), out: T.Buffer((4, 16), "float16")):
        _unused = T.sblock_alloc_buffer((8,), "float16")
        kept = T.sblock_alloc_buffer((4,), "float16")
        for i, j in T.grid(4, 16):
            with T.sblock("kept"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    kept[vi] = T.min_value("float16")
                kept[vi] = T.max(kept[vi], x[vi, vj])
        for i, j in T.grid(4, 16):
            with T.sblock("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                out[vi, vj] = x[vi, vj] - kept[vi]

    run = run_prim_func(func, [HALF])
    assert_close(run.outputs[0], HALF - HALF.max(1, keepdims=True))
    assert [item.shape for item in run.kernel.scratch] == [(4,)]
    assert [stage.arguments for stage in run.kernel.stages] == [(0, 2), (0, 1, 2)]


@pytest.mark.parametrize("shape", [(3, 0), (0,), (0, 4)])
def test_reduction_over_nothing(shape):
    """Its result is the initial value, not what happened to lie in memory."""
    a = te.placeholder(shape, name="a")
    axis = te.reduce_axis((0, shape[-1]))
    if len(shape) == 1:
        total = te.compute((), lambda: te.sum(a[axis], axis=axis))
    else:
        total = te.compute(shape[:-1], lambda i: te.sum(a[i, axis], axis=axis))
    run = run_prim_func(te.create_prim_func([a, total]), [numbers(shape)])
    assert_close(run.outputs[0], np.zeros(shape[:-1]))


def test_loops_over_int64():
    """Indices that are loaded as int64 keep their loop int64; tile ranges are int32."""
    x, rows = numbers((6, 16)), np.array([5, 0, 2], "int64")
    func = legalized_func(lambda x, i: OP.gather_elements(x, i, 0), x, np.tile(rows, (16, 1)).T)
    run = run_prim_func(func, [x, np.tile(rows, (16, 1)).T])
    assert_close(run.outputs[0], x[rows])


def test_hand_written_tile_loops_are_kept():
    """TVM's own cumulative sum is a parallel loop already: a tile for each row."""
    run = run_prim_func(legalized_func(lambda x: OP.cumsum(x, 1), X), [X])
    assert_close(run.outputs[0], X.cumsum(1))
    assert run.tiles == [4]


def test_tiles_are_independent_and_cover_the_result():
    """Running a range of tiles writes that range, and nothing else."""
    x = numbers((4, 2048))
    func = legalized_func(lambda x: OP.add(x, relax.const(1.0)), x)
    run = run_prim_func(func, [x])
    (stage,) = run.kernel.stages
    assert (stage.arguments, stage.kernel.num_tiles) == ((0, 1), 4)
    (split,) = split_into_stages(run.kernel.scheduled.func).stages
    body = compile_bodies({"add": split.body}, TARGET, lowering_pipeline())["add"]
    out = np.zeros_like(x)
    body(1, 3, [x, out])
    body(2, 2, [x, out])
    assert_close(out, np.concatenate([0 * x[:1], x[1:3] + 1, 0 * x[3:]]))
    body(0, 1, [x, out])
    assert_close(out, np.concatenate([x[:3] + 1, 0 * x[3:]]))


@T.prim_func(s_tir=True)
def scalar_parameter(x: T.Buffer((4,), "float32"), n: T.int32, out: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("out"):
            vi = T.axis.spatial(4, i)
            out[vi] = x[vi] * T.cast(n, "float32")


def test_scalar_parameters_are_refused():
    with pytest.raises(ModelError) as caught:
        split_into_stages(scalar_parameter)
    assert str(caught.value) == (
        "PrimFunc 'scalar_parameter' has the parameter 'n', which is no buffer: "
        "leave the operator out of the plan"
    )


def has_parallel_loops(run):
    stages = split_into_stages(run.kernel.scheduled.func).stages
    return any("T.parallel" in stage.body.script() for stage in stages)


def test_bodies_are_private_functions_of_a_tile_range():
    """``body(start, stop, *pointers) -> int32``, which is 0 unless it fails."""
    (stage,) = split_into_stages(written_by_two_nests).stages
    assert [param.name for param in stage.body.params] == ["start", "stop", "p0", "p1"]
    assert str(stage.body.ret_type) == "int32"
    assert "global_symbol" not in stage.body.attrs
    (again,) = split_into_stages(written_by_two_nests).stages
    tvm.ir.assert_structural_equal(stage.body, again.body)
