"""Depthwise convolutions agree with numpy for channels of every number."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, VDEVICES, constant, legalized_func, numbers, run_relax
from tvm import relax

from tvm_rammer.backend.cpu.templates.outer_product_rules import Depthwise

OP = relax.op
QUICK = settings(max_examples=12)

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
windows = st.tuples(st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 5]))
pads = st.tuples(*[st.integers(0, 2)] * 4)


def convolve(x: np.ndarray, w: np.ndarray, strides, padding, dilation) -> np.ndarray:
    """One kernel position at a time, in float64."""
    top, left, bottom, right = padding
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    (sy, sx), (dy, dx) = strides, dilation
    rows = (x.shape[1] - dy * (w.shape[1] - 1) - 1) // sy + 1
    columns = (x.shape[2] - dx * (w.shape[2] - 1) - 1) // sx + 1
    out = np.zeros((x.shape[0], rows, columns, w.shape[0]))
    for ky in range(w.shape[1]):
        for kx in range(w.shape[2]):
            ys = slice(ky * dy, ky * dy + sy * (rows - 1) + 1, sy)
            xs = slice(kx * dx, kx * dx + sx * (columns - 1) + 1, sx)
            out += x[:, ys, xs] * w[:, ky, kx, 0]
    return out


def depthwise(x, w, strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1)):
    return OP.nn.conv2d(
        x,
        w,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=int(x.ty.shape[3]),
        data_layout="NHWC",
        kernel_layout="OHWI",
    )


@QUICK
@given(
    size=st.tuples(st.integers(1, 2), st.integers(13, 16), st.integers(13, 20)),
    channels=st.one_of(st.integers(2, 70), st.sampled_from([16, 32])),
    window=windows,
    strides=pairs,
    padding=pads,
    dilation=pairs,
    vdevice=st.sampled_from(VDEVICES),
)
@example((1, 14, 15), 136, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), VDEVICES[0])
@example((1, 14, 15), 17, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1), VDEVICES[1])
def test_windows(size, channels, window, strides, padding, dilation, vdevice):
    """Strides, padding, dilation, and channels that no vector divides."""
    x, w = numbers((*size, channels)), numbers((channels, *window, 1), seed=1)

    def build(x):
        return depthwise(x, constant(w), strides, padding, dilation)

    (out,), origins = run_relax(build, x, vdevice=vdevice)
    assert_close(out, convolve(x, w, strides, padding, dilation))
    assert origins == ["depthwise"]


@pytest.mark.parametrize("window", [7, 9])
def test_large_windows(window):
    """Larger ones than a tile has rows."""
    half = window // 2
    x, w = numbers((1, 10, 12, 20)), numbers((20, window, window, 1), seed=1)
    (out,), _ = run_relax(lambda x: depthwise(x, constant(w), padding=(half,) * 4), x)
    assert_close(out, convolve(x, w, (1, 1), (half,) * 4, (1, 1)))


def test_epilogue_and_weights_that_are_no_constants():
    x, w, bias = numbers((1, 9, 9, 24)), numbers((24, 3, 3, 1), seed=1), numbers((24,), seed=2)

    def block(x, w, bias):
        return OP.nn.relu(OP.add(depthwise(x, w, padding=(1, 1, 1, 1)), bias))

    (out,), origins = run_relax(block, x, w, bias)
    want = convolve(x, w, (1, 1), (1, 1, 1, 1), (1, 1)) + bias
    assert_close(out, np.maximum(want, 0))
    assert origins == ["depthwise"]


def test_declines_convolutions_of_groups():
    x, w = numbers((1, 6, 6, 16)), numbers((16, 3, 3, 4))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    func = legalized_func(lambda x, w: OP.nn.conv2d(x, w, groups=4, **layouts), x, w)
    assert Depthwise().apply(func, frozenset([1]), HOST) is None
