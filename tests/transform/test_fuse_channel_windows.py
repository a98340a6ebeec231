"""Averages over neighbouring channels become sums that fuse; every other pool stays a pool."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.fuse_channel_windows import FuseChannelWindows
from tvm_rammer.transform.prepare import Prepare

OP = relax.op


def module(shape, *body):
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for step in body:
                value = builder.emit(step(value))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def average(size, layout="NCDHW", **options):
    """The steps of an average over channels, as TVM imports ONNX's LRN."""
    half = size // 2
    given = {
        "pool_size": (size, 1, 1),
        "strides": (1, 1, 1),
        "padding": (half, 0, 0, half, 0, 0),
        "layout": layout,
        "count_include_pad": True,
    }
    return (
        lambda x: OP.expand_dims(x, 1),
        lambda x: OP.nn.avg_pool3d(x, **(given | options)),
        lambda x: OP.squeeze(x, 1),
    )


def averaged(x, size, axis):
    """The same in numpy."""
    half = size // 2
    widths = [(half, half) if k == axis else (0, 0) for k in range(x.ndim)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, widths), size, axis)
    return windows.mean(-1)


def operators(mod):
    block = mod["main"].body.blocks[0]
    return [operator_name(binding.value).removeprefix("relax.") for binding in block.bindings]


@settings(max_examples=5)
@given(
    height=st.integers(1, 4),
    width=st.integers(1, 4),
    channels=st.sampled_from([1, 2, 3, 5, 16, 20, 45]),
    size=st.sampled_from([3, 5, 7]),
    last=st.booleans(),
)
def test_local_response_normalization(height, width, channels, size, last):
    """One element-wise kernel for it all, with channels last or first."""
    shape = (2, height, width, channels) if last else (2, channels, height, width)

    def normalise(mean):
        (x,) = params
        scale = OP.add(OP.multiply(mean, relax.const(0.5)), relax.const(2.0))
        return OP.divide(x, OP.sqrt(scale))

    params = [relax.Var("x", relax.TensorType(shape, "float32"))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            value = builder.emit(OP.multiply(params[0], params[0]))
            for step in average(size, "NCHWD" if last else "NCDHW"):
                value = builder.emit(step(value))
            output = builder.emit_output(normalise(value))
        builder.emit_func_output(output)
    mod = builder.get()
    with resolve_target():
        funcs = [f for _, f in Prepare()(mod).functions_items() if isinstance(f, tirx.PrimFunc)]
    assert len(funcs) == 1
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    (got,) = tvm_rammer.build(mod, num_veus=1).create()(x)
    want = x / np.sqrt(averaged(x * x, size, 3 if last else 1) * 0.5 + 2)
    assert_close(got.numpy(), want)


def test_of_three_dimensions():
    """TVM imports LRN of signals as a pool of images."""
    steps = (
        lambda x: OP.expand_dims(x, 1),
        lambda x: OP.nn.avg_pool2d(x, (5, 1), (1, 1), (2, 0, 2, 0), count_include_pad=True),
        lambda x: OP.squeeze(x, 1),
    )
    assert operators(FuseChannelWindows()(module((2, 8, 3), *steps)))[0] == "call_tir"


@pytest.mark.parametrize(
    "options",
    [
        {"pool_size": (5, 3, 1), "padding": (2, 1, 0, 2, 1, 0)},
        {"strides": (2, 1, 1)},
        {"dilation": (2, 1, 1), "padding": (4, 0, 0, 4, 0, 0)},
        {"count_include_pad": False},
        {"padding": (2, 1, 0, 2, 1, 0)},
        {"pool_size": (1, 1, 1), "padding": 0},
        {"pool_size": (17, 1, 1), "padding": (8, 0, 0, 8, 0, 0)},
    ],
)
def test_other_pools_stay(options):
    before = module((2, 20, 6, 6), *average(5, **options))
    assert "nn.avg_pool3d" in operators(FuseChannelWindows()(before))


def test_an_added_axis_that_is_averaged_stays():
    steps = (
        lambda x: OP.expand_dims(x, 2),
        lambda x: OP.nn.avg_pool3d(x, (3, 1, 1), 1, (1, 0, 0), count_include_pad=True),
        lambda x: OP.squeeze(x, 2),
    )
    before = module((2, 8, 6, 6), *steps)
    tvm.ir.assert_structural_equal(FuseChannelWindows()(before), before)
