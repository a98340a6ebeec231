"""Convolutions of any rank, layout and number of groups agree with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_runs import (
    HOST,
    VDEVICES,
    constant,
    legalized_func,
    numbers,
    padded_with,
    run_prim_func,
    run_relax,
)
from tvm import relax, te, tirx, topi

from tvm_rammer.backend.cpu.templates.outer_product_rules import Convolution

OP = relax.op
QUICK = settings(max_examples=15)

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
pads = st.tuples(*[st.integers(0, 2)] * 4)
vdevices = st.sampled_from(VDEVICES)


def convolve(x: np.ndarray, weight: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """NHWC convolution with OHWI weights in float64, one kernel position at a time."""
    top, left, bottom, right = attrs["padding"]
    (sy, sx), (dy, dx), groups = attrs["strides"], attrs["dilation"], attrs["groups"]
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    out_channels, height, width, inner = weight.shape
    rows = (x.shape[1] - dy * (height - 1) - 1) // sy + 1
    columns = (x.shape[2] - dx * (width - 1) - 1) // sx + 1
    out = np.zeros((x.shape[0], rows, columns, out_channels))
    for channel in range(out_channels):
        first = channel // (out_channels // groups) * inner
        for ky in range(height):
            for kx in range(width):
                pixels = x[
                    :,
                    ky * dy : ky * dy + sy * (rows - 1) + 1 : sy,
                    kx * dx : kx * dx + sx * (columns - 1) + 1 : sx,
                    first : first + inner,
                ]
                out[..., channel] += pixels @ weight[channel, ky, kx].astype(np.float64)
    return out


def conv2d(x: Any, weight: Any, attrs: dict[str, Any], **layouts: str) -> Any:
    """A channels-last convolution in Relax, if nothing else is said."""
    return OP.nn.conv2d(
        x, weight, **attrs, **{"data_layout": "NHWC", "kernel_layout": "OHWI", **layouts}
    )


def run_conv2d(
    x: np.ndarray, w: np.ndarray, attrs: dict[str, Any], vdevice: Any, constant_weights: bool
) -> tuple[np.ndarray, list[str]]:
    """The convolution and the rules that made its kernels."""
    if constant_weights:
        (out,), origins = run_relax(lambda x: conv2d(x, constant(w), attrs), x, vdevice=vdevice)
    else:
        (out,), origins = run_relax(lambda x, w: conv2d(x, w, attrs), x, w, vdevice=vdevice)
    return out, origins


def attributes(**changes: Any) -> dict[str, Any]:
    plain = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    return {**plain, **changes}


@settings(max_examples=5, deadline=None)
@given(channels=st.integers(60, 700), size=st.integers(1, 6), vdevice=vdevices)
@example(channels=257, size=3, vdevice=VDEVICES[0])
def test_long_sums(channels, size, vdevice):
    """Sums in blocks of channels, or of kernel positions and channels, with padding around."""
    x, w = numbers((1, size, size + 1, channels)), numbers((8, 3, 3, channels), seed=1)
    attrs = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    out, _ = run_conv2d(x, w, attrs, vdevice, constant_weights=True)
    assert_close(out, convolve(x, w, attrs))


@QUICK
@given(
    size=st.tuples(st.integers(1, 2), st.integers(7, 12), st.integers(7, 12), st.integers(1, 5)),
    kernel=pairs,
    strides=pairs,
    padding=pads,
    dilation=pairs,
    channels=st.one_of(st.integers(1, 70), st.sampled_from([16, 48])),
    constant_weights=st.booleans(),
    vdevice=vdevices,
)
@example((1, 7, 7, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 16, True, VDEVICES[0])
@example((1, 7, 9, 3), (3, 3), (3, 2), (1, 2, 0, 1), (3, 2), 17, True, VDEVICES[0])
@example((1, 7, 9, 3), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 34, False, VDEVICES[0])
def test_strides_padding_and_dilation(
    size, kernel, strides, padding, dilation, channels, constant_weights, vdevice
):
    """Also ragged rows and columns: the last tile is shorter, its vectors overlap."""
    attrs = attributes(strides=strides, padding=padding, dilation=dilation)
    x, w = numbers(size), numbers((channels, *kernel, size[-1]), seed=1)
    out, origins = run_conv2d(x, w, attrs, vdevice, constant_weights)
    assert_close(out, convolve(x, w, attrs))
    assert origins == ["convolution"]


@QUICK
@given(
    groups=st.sampled_from([2, 3, 4, 16]),
    inner=st.integers(1, 5),
    outer=st.sampled_from([2, 3, 4, 8, 17, 34]),
    strides=pairs,
    padding=pads,
    dilation=pairs,
    constant_weights=st.booleans(),
    vdevice=vdevices,
)
@example(4, 17, 17, (1, 1), (1, 1, 1, 1), (1, 1), True, VDEVICES[0])
@example(16, 1, 2, (1, 1), (1, 1, 1, 1), (1, 1), True, VDEVICES[0])
@example(3, 5, 17, (2, 1), (0, 2, 1, 0), (1, 2), False, VDEVICES[0])
def test_groups(groups, inner, outer, strides, padding, dilation, constant_weights, vdevice):
    """A tile of output channels never spans two groups."""
    attrs = attributes(groups=groups, strides=strides, padding=padding, dilation=dilation)
    x, w = numbers((1, 8, 7, groups * inner)), numbers((groups * outer, 3, 3, inner), seed=1)
    out, origins = run_conv2d(x, w, attrs, vdevice, constant_weights)
    assert_close(out, convolve(x, w, attrs))
    # Constant weights of more than a few channels may be transformed.
    assert origins == ["convolution"] or (constant_weights and origins == ["winograd"])


@pytest.mark.parametrize("channels", [5, 32])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_epilogue(channels, padding):
    """Padding, convolution, bias, residual and activation are one PrimFunc."""
    attrs = attributes(padding=padding)
    x, w, bias = numbers((1, 6, 6, 3)), numbers((channels, 3, 3, 3), seed=1), numbers((channels,))
    want = convolve(x, w, attrs) + bias
    residual = numbers(want.shape, seed=2)

    def block(x, residual):
        biased = OP.add(conv2d(x, constant(w), attrs), constant(bias))
        return OP.nn.relu(OP.add(biased, residual))

    assert len(legalized_func(block, x, residual).params) == 5
    (out,), _ = run_relax(block, x, residual)
    assert_close(out, np.maximum(want + residual, 0))


@QUICK
@given(
    kept=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 8), st.integers(1, 9)),
    constant_weights=st.booleans(),
    vdevice=vdevices,
)
@example((2, 4, 8, 9), True, VDEVICES[0])
@example((1, 9, 8, 5), True, VDEVICES[1])
@example((2, 1, 7, 9), False, VDEVICES[1])
def test_slice_of_the_results(kept, constant_weights, vdevice):
    """A slice from the first result on is fused; what it leaves out is not computed."""
    x, w = numbers((2, 9, 8, 3)), numbers((9, 3, 3, 3), seed=1)
    attrs = attributes(padding=(1, 1, 1, 1))

    def block(x, *weights):
        made = OP.nn.relu(conv2d(x, weights[0] if weights else constant(w), attrs))
        return OP.strided_slice(made, [0, 1, 2, 3], (0, 0, 0, 0), kept)

    inputs = [x] if constant_weights else [x, w]
    (out,), origins = run_relax(block, *inputs, vdevice=vdevice)
    slices = tuple(slice(end) for end in kept)
    assert_close(out, np.maximum(convolve(x, w, attrs), 0)[slices])
    assert origins == ["convolution"]


def test_weights_that_are_no_constants():
    """They are packed when the kernel runs, by tiles of their own."""
    x, w = numbers((1, 6, 6, 3)), numbers((48, 3, 3, 3), seed=1)
    func = legalized_func(lambda x, w: conv2d(x, w, attributes()), x, w)
    run = run_prim_func(func, [x, w])
    assert_close(run.outputs[0], convolve(x, w, attributes()))
    packing, product = run.kernel.stages
    assert packing.arguments == (1, 3)
    assert run.kernel.scratch[0].shape == (w.size,)
    assert packing.kernel.num_tiles == 48 // (HOST.vector_bytes // 4)
    assert product.kernel.origin == "convolution"


def test_padding_is_left_out():
    """Rows of padding are not multiplied: not a number in the weights does not reach them."""
    x, w = numbers((1, 4, 4, 2)), numbers((16, 3, 3, 2), seed=1).copy()
    w[:, 0] = np.nan
    attrs = attributes(padding=(1, 0, 0, 0))
    out, _ = run_conv2d(x, w, attrs, HOST, True)
    assert np.isfinite(out[:, 0]).all()
    assert np.isnan(out[:, 1:]).all()


@pytest.mark.parametrize("groups", [1, 4], ids=["dense", "depthwise"])
def test_padding_by_another_number_counts(groups):
    """Only zeros are left out."""
    x, w = numbers((1, 6, 6, 4)), numbers((4, 3, 3, 4 // groups), seed=1)
    attrs = attributes(padding=(1, 0, 1, 2), groups=groups)
    func = padded_with(legalized_func(lambda x: conv2d(x, constant(w), attrs), x), 2.5)
    run = run_prim_func(func, [x, w], [1])
    padded = np.pad(x, ((0, 0), (1, 1), (0, 2), (0, 0)), constant_values=2.5)
    assert_close(run.outputs[0], convolve(padded, w, attributes(groups=groups)))


@pytest.mark.parametrize("padding", [0, 1])
def test_indices_of_32_bits(padding):
    """As TVMScript and tensor expressions write them."""

    def extents(*shape: int) -> list[Any]:
        return [tirx.const(n, "int32") for n in shape]

    x, w = numbers((1, 14, 14, 16)), numbers((16, 3, 3, 16), seed=1)
    data, weight = (te.placeholder(extents(*a.shape), "float32") for a in (x, w))
    made = topi.nn.conv(data, weight, 1, padding, 1, 1, "NHWC", "OHWI")
    run = run_prim_func(te.create_prim_func([data, weight, made]), [x, w], [1])
    assert_close(run.outputs[0], convolve(x, w, attributes(padding=(padding,) * 4)))


def test_float64():
    """Accumulators twice as wide."""
    attrs = attributes(padding=(1, 1, 1, 1))
    x, w = numbers((1, 9, 9, 3), "float64"), numbers((32, 3, 3, 3), "float64", seed=1)
    (out,), _ = run_relax(lambda x: conv2d(x, constant(w), attrs), x)
    assert_close(out, convolve(x, w, attrs), 1e-12)


def test_no_images():
    """A batch of none."""
    x, w = numbers((0, 6, 6, 3)), numbers((16, 3, 3, 3), seed=1)
    (out,), _ = run_relax(lambda x: conv2d(x, constant(w), attributes()), x)
    assert out.shape == (0, 4, 4, 16)


def test_transposed_convolution():
    """Its input is spread out by a loop nest of its own."""
    x, w = numbers((1, 4, 5, 6), seed=3), numbers((4, 8, 3, 3), seed=1)

    def upsample(x):
        return OP.nn.conv2d_transpose(x, constant(w), strides=(2, 2), padding=(1, 1, 1, 1))

    (out,), _ = run_relax(upsample, x)
    spread = np.zeros((1, 9, 11, 4))
    spread[:, ::2, ::2] = x.transpose(0, 2, 3, 1)
    flipped = w[:, :, ::-1, ::-1].transpose(1, 2, 3, 0)
    want = convolve(spread, flipped, attributes(padding=(1, 1, 1, 1)))
    assert_close(out.transpose(0, 2, 3, 1), want)


@pytest.mark.parametrize("constant_weights", [True, False])
def test_three_dimensions(constant_weights):
    """Volumes, channels first."""
    x, w = numbers((1, 2, 4, 4, 5)), numbers((8, 2, 2, 2, 2), seed=1)
    inputs = [x] if constant_weights else [x, w]

    def conv3d(x, *weights):
        return OP.nn.conv3d(x, weights[0] if weights else constant(w), padding=(1, 1, 1))

    (out,), origins = run_relax(conv3d, *inputs)
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2, 2), axis=(2, 3, 4))
    assert_close(out, np.einsum("ncdhwxyz,ocxyz->nodhw", windows, w))
    assert origins == ["convolution"]


@pytest.mark.parametrize("constant_weights", [True, False])
def test_one_dimension(constant_weights):
    """Signals, channels first."""
    x, w = numbers((2, 3, 29)), numbers((20, 3, 4), seed=1)
    inputs = [x] if constant_weights else [x, w]

    def conv1d(x, *weights):
        return OP.nn.conv1d(x, weights[0] if weights else constant(w), strides=2)

    (out,), origins = run_relax(conv1d, *inputs)
    windows = np.lib.stride_tricks.sliding_window_view(x, 4, axis=2)[:, :, ::2]
    assert_close(out, np.einsum("nclx,ocx->nol", windows, w))
    assert origins == ["convolution"]


@pytest.mark.parametrize("constant_weights", [True, False])
def test_channels_first(constant_weights):
    """Vectors run along the channels of the weights whatever the layouts are."""
    x, w = numbers((1, 3, 9, 10)), numbers((18, 3, 3, 3), seed=1)
    attrs = attributes(padding=(1, 1, 1, 1))
    inputs = [x] if constant_weights else [x, w]

    def conv(x, *weights):
        layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW"}
        return conv2d(x, weights[0] if weights else constant(w), attrs, **layouts)

    (out,), origins = run_relax(conv, *inputs)
    want = convolve(x.transpose(0, 2, 3, 1), w.transpose(0, 2, 3, 1), attrs)
    assert_close(out, want.transpose(0, 3, 1, 2))
    assert origins == ["convolution"]


IMAGE = numbers((1, 16, 6, 6))
LAST = numbers((1, 6, 6, 16))


@pytest.mark.parametrize(
    ("reason", "build", "inputs"),
    [
        (
            "depthwise",
            lambda x, w: conv2d(x, w, attributes(groups=16)),
            [LAST, numbers((16, 3, 3, 1))],
        ),
        ("a product", OP.matmul, [numbers((4, 16)), numbers((16, 16))]),
        ("a window without weights", lambda x: OP.nn.max_pool2d(x, 3), [IMAGE]),
        ("no reduction", OP.add, [IMAGE, IMAGE]),
    ],
)
def test_declines(reason, build, inputs):
    """The rule answers ``None`` to what is not its own, whatever is a constant."""
    func = legalized_func(build, *inputs)
    everything = frozenset(range(len(func.params)))
    assert Convolution().apply(func, everything, HOST) is None, reason
