"""Pools of large windows become pools along one axis, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from small_graphs import run
from tvm import relax

from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.separate_pools import SeparatePools

OP = relax.op


def module(operator, shape, dtype="float32", **options):
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(operator(x, **options))
        builder.emit_func_output(result)
    return builder.get()


def pools(mod):
    """The windows, strides, dilations and paddings of the pools of a module."""
    calls = [binding.value for binding in mod["main"].body.blocks[0].bindings]
    assert all("pool" in operator_name(call) for call in calls)
    names = ("pool_size", "strides", "dilation", "padding")
    return [tuple(tuple(map(int, getattr(c.attrs, name))) for name in names) for c in calls]


def test_a_maximum_is_that_of_the_maxima_of_rows():
    before = module(OP.nn.max_pool2d, (1, 4, 20, 20), pool_size=13, padding=6)
    assert pools(SeparatePools()(before)) == [
        ((13, 1), (1, 1), (1, 1), (6, 0, 6, 0)),
        ((1, 13), (1, 1), (1, 1), (0, 6, 0, 6)),
    ]


def test_a_long_row_is_short_ones():
    """31 elements are 6 times 6 whose first ones are 5 apart."""
    before = module(OP.nn.max_pool1d, (1, 4, 100), pool_size=31, strides=2, padding=(15, 14))
    assert pools(SeparatePools()(before)) == [
        ((6,), (1,), (1,), (15, 14)),
        ((6,), (2,), (5,), (0, 0)),
    ]


def test_a_row_of_thousands_is_cut_at_once():
    """A search over pairs of lengths would take minutes."""
    before = module(OP.nn.max_pool1d, (1, 1, 40000), pool_size=16000, strides=8000)
    assert [pool[0] for pool in pools(SeparatePools()(before))] in ([(16000,)], [(127,), (126,)])


def test_an_axis_without_a_window_has_no_pool():
    before = module(OP.nn.max_pool2d, (1, 4, 100, 20), pool_size=(31, 1))
    assert [pool[0] for pool in pools(SeparatePools()(before))] == [(6, 1), (6, 1)]


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        (OP.nn.max_pool2d, {"pool_size": 3, "padding": 1}),
        (OP.nn.max_pool2d, {"pool_size": 8, "strides": 8}),
        (OP.nn.avg_pool2d, {"pool_size": 20}),
        (OP.nn.max_pool2d, {"pool_size": (13, 1)}),
        (OP.nn.max_pool2d, {"pool_size": 7, "layout": "NCHW", "out_layout": "NHWC"}),
    ],
    ids=["small", "apart", "global", "one axis", "other layout"],
)
def test_what_has_nothing_in_common_stays(operator, options):
    before = module(operator, (1, 4, 20, 20), **options)
    assert SeparatePools()(before).same_as(before)


@settings(max_examples=30)
@given(
    size=st.tuples(*[st.integers(7, 30)] * 2),
    window=st.tuples(*[st.integers(1, 23)] * 2),
    strides=st.tuples(*[st.integers(1, 3)] * 2),
    dilation=st.sampled_from([(1, 1), (1, 1), (2, 1)]),
    padding=st.tuples(*[st.integers(0, 11)] * 4),
    average=st.booleans(),
    count_include_pad=st.booleans(),
    ceil_mode=st.booleans(),
    last=st.booleans(),
)
@example((9, 20), (9, 13), (1, 1), (1, 1), (4, 6, 4, 6), False, False, False, True)
@example((9, 20), (7, 19), (2, 3), (1, 1), (3, 2, 1, 0), True, False, True, False)
@example((30, 30), (23, 23), (1, 2), (1, 1), (11, 0, 3, 11), False, False, False, False)
def test_results_are_the_same(
    size, window, strides, dilation, padding, average, count_include_pad, ceil_mode, last
):
    reach = [(k - 1) * step for k, step in zip(window, dilation, strict=True)]
    assume(all(max(padding[k::2]) < window[k] for k in range(2)))
    assume(all(reach[k] < size[k] + sum(padding[k::2]) for k in range(2)))
    options = {
        "pool_size": window,
        "strides": strides,
        "dilation": dilation,
        "padding": padding,
        "ceil_mode": ceil_mode,
        "layout": "NHWC" if last else "NCHW",
        **({"count_include_pad": count_include_pad} if average else {}),
    }
    shape = (2, *size, 3) if last else (2, 3, *size)
    before = module(OP.nn.avg_pool2d if average else OP.nn.max_pool2d, shape, **options)
    after = SeparatePools()(before)
    assume(not after.same_as(before))
    x = np.random.default_rng(0).standard_normal(shape).astype("float32") - 3
    (want,), (got,) = (run(relax.build(mod, "llvm"), [x]) for mod in (before, after))
    if average:
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, want)
