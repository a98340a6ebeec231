"""What all lanes of a vector answer alike is asked once, and only that."""

from __future__ import annotations

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.ir import TensorLoad

from tvm_rammer.backend.cuda.arch_target import target_of
from tvm_rammer.backend.cuda.launches import launches_of
from tvm_rammer.backend.cuda.lower_launch import lowered_launch
from tvm_rammer.backend.cuda.sliced_matmul import SlicedMatmul
from tvm_rammer.backend.cuda.whole_vectors import WholeVectors
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.nodes import collect, substitute

X = tirx.Var("x", "int32")
LANE = tirx.Var("lane", "int32")


def vector(value, lanes=4, kind=tirx.ForKind.VECTORIZED):
    """Lanes of a vector: the value of each, in a buffer."""
    stored = tirx.decl_buffer((64,), str(value.ty))
    place = (LANE,)
    loop = tirx.For(LANE, 0, lanes, kind, tirx.BufferStore(stored, value, place))
    func = tirx.PrimFunc([X, stored], loop)
    return tvm.IRModule({"main": func})


def after(value, lanes=4):
    return WholeVectors()(vector(value, lanes))["main"].body.body.value


def evaluated(value, x: int, lane: int) -> int:
    found = substitute(value, {X: tirx.const(x, "int32"), LANE: tirx.const(lane, "int32")})
    return int(tvm.sym.Analyzer().simplify(found))


WHOLE = [
    tirx.FloorDiv(X * 4 + LANE + 128, 192),
    X * 8 + LANE < 64,
    X * 8 + LANE >= 64,
    tirx.const(12, "int32") <= X * 4 + LANE,
    tirx.const(12, "int32") > X * 4 + LANE,
    tirx.And(tirx.FloorDiv(X * 4 + LANE, 8) + X < 7, X * 4 + LANE < 20),
]


@pytest.mark.parametrize("value", WHOLE, ids=str)
def test_it_is_asked_of_the_first_lane(value):
    assert LANE in variables(value) and LANE not in variables(after(value))


def test_lanes_of_a_remainder_lie_side_by_side():
    found = after(tirx.FloorMod(X * 4 + LANE + 128, 192))
    assert isinstance(found, tirx.Add) and found.b.same_as(LANE)


OTHERS = [
    tirx.FloorDiv(X * 4 + LANE, 6),
    tirx.FloorDiv(X * 2 + LANE, 8),
    tirx.FloorDiv(X * 4 + LANE + 2, 8),
    tirx.FloorDiv(X * 4 + LANE * 2, 8),
    X * 4 + LANE < 10,
    X * 4 + LANE <= 8,
    tirx.const(8, "int32") < X * 4 + LANE,
]


@pytest.mark.parametrize("value", OTHERS, ids=str)
def test_what_lanes_change_stays_as_it_is(value):
    assert after(value).same_as(value)


def test_loops_that_are_no_vectors_stay_as_they_are():
    before = vector(WHOLE[0], kind=tirx.ForKind.UNROLLED)
    assert WholeVectors()(before)["main"].body.same_as(before["main"].body)


@given(
    step=st.integers(1, 12),
    start=st.integers(0, 12),
    divisor=st.integers(1, 24),
    lanes=st.sampled_from([2, 4, 8]),
    kind=st.sampled_from([tirx.FloorDiv, tirx.FloorMod, tirx.LT, tirx.LE, tirx.GT, tirx.GE]),
    turned=st.booleans(),
    x=st.integers(-20, 20),
)
def test_every_lane_has_the_value_that_it_had(step, start, divisor, lanes, kind, turned, x):
    operands = [X * step + LANE + start, tirx.const(divisor, "int32")]
    divides = kind in (tirx.FloorDiv, tirx.FloorMod)
    value = kind(*(operands[::-1] if turned and not divides else operands))
    found = after(value, lanes)
    for lane in range(lanes):
        assert evaluated(found, x, lane) == evaluated(value, x, lane)


def test_a_convolution_whose_steps_end_between_windows_loads_vectors():
    """A step of 128 terms, and 192 channels: lanes of a vector are of the same place in both."""
    x = relax.Var("x", relax.TensorType((1, 17, 17, 192), "float32"))
    w = relax.Var("w", relax.TensorType((192, 1, 7, 192), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        conv = builder.emit(relax.op.nn.conv2d(x, w, padding=[0, 3, 0, 3], **layouts))
        builder.emit_func_output(conv)
    mod = relax.transform.LegalizeOps()(builder.get())
    (func,) = (f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc))
    with target_of("sm_90") as target:
        scheduled = SlicedMatmul((4, 8), (4, 4), 8, 16).apply(func, target, False)
    (launch,) = launches_of(scheduled.mod["main"]).functions
    lowered = lowered_launch(launch, target)
    loads = [load for load in collect(lowered.body, TensorLoad) if load.source.scope() == "global"]
    assert {str(load.ty) for load in loads} == {"float32x4"}
