"""Pools of small windows, in both layouts, with every padding that Relax knows."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_runs import (
    HOST,
    VDEVICES,
    legalized_func,
    numbers,
    padded_with,
    run_prim_func,
    run_relax,
)
from tvm import relax

from tvm_rammer.backend.cpu.templates.pooling_rule import Pooling

OP = relax.op
QUICK = settings(max_examples=12)

vdevices = st.sampled_from(VDEVICES)


def windows(x, size, stride, padding, dilation, fill):
    """All windows of an NHWC image, as many as lie inside of the padding."""
    padded = np.pad(
        x, ((0, 0), (padding, padding), (padding, padding), (0, 0)), constant_values=fill
    )
    reach = dilation * (size - 1) + 1
    found = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), axis=(1, 2))
    return found[:, ::stride, ::stride, :, ::dilation, ::dilation]


def average(x, size, stride, padding, dilation, whole):
    total = windows(x, size, stride, padding, dilation, 0).sum((-1, -2))
    inside = windows(np.ones_like(x), size, stride, padding, dilation, 0).sum((-1, -2))
    return total / (size * size if whole else np.maximum(inside, 1))


@QUICK
@given(
    data=st.data(),
    name=st.sampled_from(["max", "avg"]),
    shape=st.tuples(*[st.integers(1, 2), st.integers(1, 11), st.integers(1, 11)]),
    channels=st.sampled_from([1, 3, 16, 20, 45, 64]),
    last=st.booleans(),
    vdevice=vdevices,
)
def test_pools(data, name, shape, channels, last, vdevice):
    """Any window, stride, padding and dilation; an addition may follow."""
    size, stride = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    dilation = data.draw(st.integers(1, 2)) if name == "max" else 1
    padding = data.draw(st.integers(0, 2))
    whole = data.draw(st.booleans())
    reach = dilation * (size - 1) + 1
    assume(size > 1 and min(shape[1:]) + 2 * padding >= reach)
    x = numbers((*shape, channels))
    if name == "max":
        want = windows(x, size, stride, padding, dilation, np.finfo("float32").min).max((-1, -2))
    else:
        want = average(x, size, stride, padding, dilation, whole)
    given = x if last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    want = want if last else want.transpose(0, 3, 1, 2)
    more = numbers(want.shape, seed=1)
    options = {} if name == "max" else {"count_include_pad": whole}

    def build(x, more):
        pool = getattr(OP.nn, f"{name}_pool2d")
        layout = "NHWC" if last else "NCHW"
        return OP.add(pool(x, size, stride, padding, dilation, layout=layout, **options), more)

    (out,), origins = run_relax(build, given, more, vdevice=vdevice)
    assert_close(out, want + more)
    assert origins == ["pooling"]


@pytest.mark.parametrize("size", [10, 11, 12])
@pytest.mark.parametrize("name", ["max", "avg"])
def test_the_ceiling_mode_counts_only_what_is_inside(name, size):
    x = np.abs(numbers((1, size, size, 20)))
    pool = getattr(OP.nn, f"{name}_pool2d")
    (out,), _ = run_relax(lambda x: pool(x, 3, 2, 0, ceil_mode=True, layout="NHWC"), x)
    count = -(-(size - 3) // 2) + 1
    parts = [
        [x[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] for j in range(count)] for i in range(count)
    ]
    reduce = np.max if name == "max" else np.mean
    want = np.stack([np.stack([reduce(p, (1, 2)) for p in row], 1) for row in parts], 1)
    assert_close(out, want)


def test_a_window_that_lies_in_the_padding_is_the_smallest_number():
    """Nothing inside counts instead."""
    x = np.abs(numbers((1, 4, 4, 16)))
    (out,), _ = run_relax(lambda x: OP.nn.max_pool2d(x, 2, 1, (3, 0, 0, 0), layout="NHWC"), x)
    assert (out[0, 0] == np.finfo("float32").min).all()
    assert (out[0, 2, 0] == np.maximum(x[0, 0, 0], x[0, 0, 1])).all()


@pytest.mark.parametrize("value", [0.0, -2.0])
def test_padding_by_a_larger_number_counts(value):
    x = numbers((1, 6, 6, 16)) - 5
    pool = legalized_func(lambda x: OP.nn.max_pool2d(x, 3, 1, 1, layout="NHWC"), x)
    out = run_prim_func(padded_with(pool, value), [x]).outputs[0]
    assert_close(out, windows(x, 3, 1, 1, 1, value).max((-1, -2)))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8"])
def test_other_dtypes(dtype):
    x = numbers((1, 7, 7, 20), dtype)
    (out,), _ = run_relax(lambda x: OP.nn.max_pool2d(x, 3, 2, 1, layout="NHWC"), x)
    smallest = np.finfo(dtype).min if x.dtype.kind == "f" else np.iinfo(dtype).min
    np.testing.assert_array_equal(out, windows(x, 3, 2, 1, 1, smallest).max((-1, -2)))


def test_pools_of_signals_and_volumes():
    x = numbers((2, 9, 20))
    (out,), origins = run_relax(lambda x: OP.nn.max_pool1d(x, 3, 2, 0, layout="NWC"), x)
    assert_close(out, np.stack([x[:, k : k + 3].max(1) for k in range(0, 7, 2)], 1))
    assert origins == ["pooling"]
    y = numbers((1, 4, 4, 4, 20))
    (out,), origins = run_relax(lambda y: OP.nn.avg_pool3d(y, 2, 2, 0, layout="NDHWC"), y)
    assert_close(out, y.reshape(1, 2, 2, 2, 2, 2, 2, 20).mean((2, 4, 6)))
    assert origins == ["pooling"]


def test_an_average_to_a_size_that_does_not_divide():
    x = numbers((1, 7, 7, 20))
    (out,), _ = run_relax(lambda x: OP.nn.adaptive_avg_pool2d(x, 3, "NHWC"), x)
    bounds = [(7 * k // 3, -(-7 * (k + 1) // 3)) for k in range(3)]
    want = [[x[:, a:b, c:d].mean((1, 2)) for c, d in bounds] for a, b in bounds]
    assert_close(out, np.stack([np.stack(row, 1) for row in want], 1))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: OP.sum(x, [1]),
        lambda x: OP.max(x, [1, 2]),
        lambda x: OP.nn.avg_pool2d(x, 7, layout="NHWC"),
        lambda x: OP.argmax(x, 3),
        lambda x: OP.nn.softmax(x),
    ],
    ids=["sum", "max", "49 terms", "argmax", "softmax"],
)
def test_what_it_declines(build):
    """Reductions without windows, and windows that are too large to write out."""
    func = legalized_func(build, numbers((1, 7, 7, 20)))
    assert Pooling().apply(func, frozenset(), HOST) is None


def test_few_rows_are_divided_by_their_channels():
    """Seven rows of 512 channels are tiles enough for many vEUs."""
    x = numbers((1, 7, 7, 512))
    func = legalized_func(lambda x: OP.nn.max_pool2d(x, 3, 1, 1, layout="NHWC"), x)
    run = run_prim_func(func, [x], vdevice=VDEVICES[0])
    assert_close(run.outputs[0], windows(x, 3, 1, 1, 1, np.finfo("float32").min).max((-1, -2)))
    assert run.tiles == [56]


def test_a_pool_with_one_result():
    """No axis is left to divide among tiles."""
    x = numbers((1, 2, 2, 1))
    (out,), origins = run_relax(lambda x: OP.nn.max_pool2d(x, 2, layout="NHWC"), x, vdevice=HOST)
    assert_close(out, x.max((1, 2), keepdims=True))
    assert origins == ["pooling"]
