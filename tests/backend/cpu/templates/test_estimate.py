"""Modelled costs of functions: a vector of ours costs once, libm's once for every lane."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
from tvm_rammer.machine.speeds import DEFAULT_SPEEDS


def seconds(function: Any, lanes: int, dtype: str = "float32") -> float:
    """The modelled time of a function of 4096 numbers, in vectors; memory counts for nothing."""
    x = te.placeholder((4096,), dtype, name="x")
    y = te.compute((4096,), lambda i: function(x[i]), name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("y")
    (loop,) = sch.get_loops(block)
    outer, inner = sch.split(loop, [None, lanes])
    sch.vectorize(inner)
    # The model reads lowered loops: the block's own statement in place of the block.
    loops = sch.get(outer), sch.get(inner)
    nest = sch.get(block).body
    for one in reversed(loops):
        nest = tirx.For(one.loop_var, one.min, one.extent, one.kind, nest)
    return tile_seconds(DEFAULT_SPEEDS, nest, 1, 0)


@pytest.mark.parametrize(
    "function", [tirx.exp, tirx.tanh, tirx.erf, tirx.log, tirx.sigmoid, tirx.sin, tirx.cos]
)
def test_a_vector_costs_as_much_as_one_number(function):
    assert seconds(function, 16) == pytest.approx(seconds(function, 1) / 16)


@pytest.mark.parametrize(
    ("function", "dtype"), [(tirx.tan, "float32"), (tirx.exp, "float64"), (tirx.pow, "float16")]
)
def test_libm_is_called_for_every_lane(function, dtype):
    def call(x: Any) -> Any:
        return tirx.pow(x, x) if function is tirx.pow else function(x)

    assert seconds(call, 16, dtype) > 0.9 * seconds(call, 1, dtype)
    assert seconds(call, 16, dtype) > 2 * seconds(tirx.exp, 16)


def test_a_power_by_a_constant_is_cheaper_than_one_by_a_number():
    constant = tirx.const(0.75, "float32")
    assert seconds(lambda x: tirx.pow(x, constant), 16) < seconds(lambda x: tirx.pow(x, x), 16) / 3


def test_single_instructions_cost_little_in_any_type():
    for function in (tirx.abs, tirx.floor, lambda x: tirx.if_then_else(x > 0, x, -x)):
        for dtype in ("float16", "float32", "float64"):
            assert seconds(function, 16, dtype) < seconds(tirx.exp, 16) / 5
