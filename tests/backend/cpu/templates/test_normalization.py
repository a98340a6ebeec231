"""Normalisations: statistics and result of a row in one tile."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import VDEVICES, numbers, run_relax
from tvm import relax

OP = relax.op
EPSILON = 1e-5
QUICK = settings(max_examples=10)
vdevices = st.sampled_from(VDEVICES)


def normalised(x, axes):
    x = x.astype("float64")
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON)


def per_channel(parameter, rank):
    return parameter.reshape(-1, *(1,) * (rank - 2))


@QUICK
@given(
    outer=st.lists(st.integers(1, 4), max_size=2).map(tuple),
    inner=st.lists(st.integers(3, 24), min_size=1, max_size=2).map(tuple),
    vdevice=vdevices,
)
def test_layer_norm(outer, inner, vdevice):
    """Over one or several last axes."""
    x, gamma, beta = numbers(outer + inner), numbers(inner, seed=1), numbers(inner, seed=2)
    axes = list(range(-len(inner), 0))
    (out,), origins = run_relax(
        lambda x, g, b: OP.nn.layer_norm(x, g, b, axes), x, gamma, beta, vdevice=vdevice
    )
    assert_close(out, normalised(x, tuple(axes)) * gamma + beta, 2e-6)
    if np.prod(inner) >= vdevice.vector_bytes // 4:
        assert origins == ["reduction"]


@QUICK
@given(rows=st.integers(1, 9), columns=st.integers(4, 150), vdevice=vdevices)
def test_rms_norm(rows, columns, vdevice):
    x, weight = numbers((rows, columns)), numbers((columns,), seed=1)
    (out,), origins = run_relax(lambda x, w: OP.nn.rms_norm(x, w, -1), x, weight, vdevice=vdevice)
    wide = x.astype("float64")
    assert_close(out, wide / np.sqrt((wide**2).mean(-1, keepdims=True) + EPSILON) * weight, 2e-6)
    assert origins == ["reduction"]


@pytest.mark.parametrize("axes", [[2, 3], [1, 2]], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("image", [(5, 7), (16, 16)])
def test_instance_norm(axes, image):
    """Over the pixels of each channel."""
    channels = 3 if axes == [2, 3] else 20
    shape = (2, channels, *image) if axes == [2, 3] else (2, *image, channels)
    x, gamma, beta = numbers(shape), numbers((channels,), seed=1), numbers((channels,), seed=2)
    axis = 1 if axes == [2, 3] else 3
    (out,), origins = run_relax(
        lambda x, g, b: OP.nn.instance_norm(x, g, b, axis, axes), x, gamma, beta
    )
    rank = 4 if axes == [2, 3] else 2
    want = normalised(x, tuple(axes)) * per_channel(gamma, rank) + per_channel(beta, rank)
    assert_close(out, want, 2e-6)
    assert origins == ["reduction"]


@pytest.mark.parametrize("name", ["variance", "std"])
@pytest.mark.parametrize("axis", [0, 1])
def test_spread(name, axis):
    """The mean is subtracted before squaring: no digits are lost far from zero."""
    x = numbers((40, 40)) + np.float32(1000)
    (out,), origins = run_relax(lambda x: getattr(OP, name)(x, [axis]), x)
    want = (np.var if name == "variance" else np.std)(x.astype("float64"), axis)
    assert_close(out, want, 1e-4)
    assert origins == ["reduction"]


@QUICK
@given(
    batch=st.integers(1, 2),
    groups=st.integers(1, 3),
    of_group=st.integers(1, 4),
    image=st.sampled_from([(4, 4), (5, 7), (1, 19)]),
    vdevice=vdevices,
)
def test_group_norm(batch, groups, of_group, image, vdevice):
    """Over the pixels and the channels of a group; the reshapes around it cost nothing."""
    channels = groups * of_group
    x = numbers((batch, channels, *image))
    gamma, beta = numbers((channels,), seed=1), numbers((channels,), seed=2)
    (out,), origins = run_relax(
        lambda x, g, b: OP.nn.group_norm(x, g, b, groups, 1, [2, 3]),
        x,
        gamma,
        beta,
        vdevice=vdevice,
    )
    grouped = normalised(x.reshape(batch, groups, -1), (2,)).reshape(x.shape)
    assert_close(out, grouped * per_channel(gamma, 4) + per_channel(beta, 4), 4e-6)
    assert origins == ["reduction"]
