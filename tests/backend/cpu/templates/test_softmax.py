"""Softmax and log-softmax: one pass over the rows, the exponentials computed once."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import VDEVICES, legalized_func, numbers, run_prim_func, run_relax
from tvm import relax, te, topi
from tvm.ir import Call

OP = relax.op
SOFTMAX = {"softmax": OP.nn.softmax, "log_softmax": OP.nn.log_softmax}
vdevices = st.sampled_from(VDEVICES)


def softmax(x, axis, name="softmax"):
    x = x.astype("float64")
    shifted = x - x.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return np.exp(shifted) / total if name == "softmax" else shifted - np.log(total)


@settings(max_examples=15)
@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
    name=st.sampled_from(list(SOFTMAX)),
    vdevice=vdevices,
)
def test_any_axis(data, shape, name, vdevice):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = 4 * numbers(shape)
    (out,), _ = run_relax(lambda x: SOFTMAX[name](x, axis), x, vdevice=vdevice)
    assert_close(out, softmax(x, axis, name), 1e-6)


@settings(max_examples=8)
@given(rows=st.integers(1, 9), columns=st.integers(4, 150), vdevice=vdevices)
def test_last_axis(rows, columns, vdevice):
    """One stage that needs no memory besides its result."""
    x = numbers((rows, columns))
    func = legalized_func(lambda x: OP.nn.softmax(x, -1), x)
    run = run_prim_func(func, [x], vdevice=vdevice)
    assert_close(run.outputs[0], softmax(x, -1), 1e-6)
    assert run.origin == "reduction"
    assert run.kernel.scratch == ()
    assert len(run.kernel.stages) == 1


@pytest.mark.parametrize("kept", [1, 21])
def test_a_part_of_every_row(kept):
    """As attention with sinks has it: no row is written into the next one, which others write."""
    x = numbers((2, 21, 22))
    func = legalized_func(lambda x: OP.strided_slice(OP.nn.softmax(x, -1), [2], [0], [kept]), x)
    run = run_prim_func(func, [x])
    assert_close(run.outputs[0], softmax(x, -1)[..., :kept], 1e-6)


@pytest.mark.parametrize("axis", [1, 2])
def test_exponentials_are_computed_once(axis):
    """For each piece of a row there is one exponential, and no other function."""
    x = numbers((3, 32, 32))
    func = legalized_func(lambda x: OP.nn.softmax(x, axis), x)
    body = run_prim_func(func, [x]).kernel.scheduled.func.body
    calls = []
    tvm_ffi.structural_walk(body, (Call, lambda call: calls.append(call.op.name)))
    assert calls == ["tirx.exp"]


@pytest.mark.parametrize("axis", [0, 1])
def test_masked_elements(axis):
    """Minus infinity gets no weight; a row of nothing else, or with NaN, becomes NaN."""
    x = numbers((20, 20)).copy()
    x[2, 3] = x[4, 4] = -np.inf
    x[7, :] = x[:, 7] = -np.inf
    x[9, 11] = np.nan
    (out,), _ = run_relax(lambda x: OP.nn.softmax(x, axis), x)
    with np.errstate(invalid="ignore"):
        want = softmax(x, axis)
    assert_close(out, want, 1e-6)
    assert np.isnan(want).any()
    assert out[2, 3] == 0


def test_no_overflow():
    """Large numbers are shifted before the exponential."""
    x = numbers((4, 40)) * 1e4
    (out,), _ = run_relax(lambda x: OP.nn.softmax(x, -1), x)
    assert_close(out, softmax(x, -1), 1e-6)


@settings(max_examples=6)
@given(
    shape=st.sampled_from([(3, 300), (2, 40, 35), (5, 17)]),
    axis=st.integers(0, 1),
    vdevice=vdevices,
)
def test_results_that_cannot_hold_a_row(shape, axis, vdevice):
    """The exponentials wait in memory of the tile where the result is of another type."""
    x = numbers(shape)
    axis = len(shape) - 1 - axis
    a = te.placeholder(shape, name="a")
    half = topi.cast(topi.nn.softmax(a, axis), "float16")
    run = run_prim_func(te.create_prim_func([a, half]), [x], vdevice=vdevice)
    assert_close(run.outputs[0], softmax(x, axis), 1e-3)
    assert run.kernel.scratch == ()
