"""Transposed convolutions of any stride, padding, dilation and groups agree with numpy."""

from __future__ import annotations

from itertools import product
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
    numbers,
    relax_module,
    run_module,
)
from tvm import relax

from tvm_rammer.transform.prepare import Prepare

OP = relax.op


def transposed(x: np.ndarray, w: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """Channels first, in float64: every input element adds the kernel where it belongs."""
    groups, rank = attrs["groups"], x.ndim - 2
    inner, outer = x.shape[1] // groups, w.shape[1]
    moves = list(zip(attrs["strides"], attrs["dilation"], strict=True))
    whole = [
        (n - 1) * stride + (k - 1) * step + 1 + more
        for n, k, (stride, step), more in zip(
            x.shape[2:], w.shape[2:], moves, attrs["output_padding"], strict=True
        )
    ]
    out = np.zeros((x.shape[0], groups * outer, *whole))
    for group, place in product(range(groups), product(*map(range, w.shape[2:]))):
        some = slice(group * inner, (group + 1) * inner)
        element = w[(some, slice(None), *place)].astype(np.float64)
        where = [
            slice(k * step, k * step + (n - 1) * stride + 1, stride)
            for k, n, (stride, step) in zip(place, x.shape[2:], moves, strict=True)
        ]
        added = np.einsum("bi...,io->bo...", x[:, some].astype(np.float64), element)
        out[(slice(None), slice(group * outer, (group + 1) * outer), *where)] += added
    before, after = attrs["padding"][:rank], attrs["padding"][rank:]
    kept = [slice(first, n - last) for first, n, last in zip(before, whole, after, strict=True)]
    return out[(slice(None), slice(None), *kept)]


def run_transposed(
    x: np.ndarray, w: np.ndarray, attrs: dict[str, Any], vdevice: Any, constant_weights: bool
) -> tuple[np.ndarray, list[str]]:
    """A transposed convolution as a model has it, and the rules that made its kernels."""
    operator = OP.nn.conv1d_transpose if x.ndim == 3 else OP.nn.conv2d_transpose
    inputs = [x] if constant_weights else [x, w]

    def build(data: Any, *weights: Any) -> Any:
        return operator(data, *(weights or [constant(w)]), **attrs)

    (out,), origins = run_module(Prepare()(relax_module(build, *inputs)), *inputs, vdevice=vdevice)
    return out, origins


@st.composite
def problems(draw: Any) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Data, kernel and attributes that leave something of the result."""
    rank = draw(st.integers(1, 2))
    strides = [draw(st.integers(1, 4)) for _ in range(rank)]
    dilation = [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)]
    kernel = [draw(st.integers(1, 5)) for _ in range(rank)]
    sizes = [draw(st.integers(3, 7)) for _ in range(rank)]
    most = [min(2, (k - 1) * step) for k, step in zip(kernel, dilation, strict=True)]
    padding = [draw(st.integers(0, bound)) for bound in most * 2]
    more = [draw(st.integers(0, stride - 1)) for stride in strides]
    groups, inner = draw(st.sampled_from([(1, 3), (1, 20), (2, 3), (5, 1), (17, 1)]))
    outer = draw(st.sampled_from([1, 2, 3, 9, 17]))
    x = numbers((draw(st.integers(1, 2)), groups * inner, *sizes))
    w = numbers((groups * inner, outer, *kernel), seed=1)
    attrs = {
        "strides": strides,
        "dilation": dilation,
        "padding": padding,
        "output_padding": more,
        "groups": groups,
    }
    return x, w, attrs


def problem(
    shape: tuple[int, ...], kernel: tuple[int, ...], strides: list[int], **changes: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """A problem with the attributes that most networks have."""
    rank = len(strides)
    attrs = {
        "strides": strides,
        "dilation": [1] * rank,
        "padding": [0] * 2 * rank,
        "output_padding": [0] * rank,
        "groups": 1,
    }
    return numbers(shape), numbers(kernel, seed=1), {**attrs, **changes}


@settings(max_examples=25)
@given(problem=problems(), constant_weights=st.booleans(), vdevice=st.sampled_from(VDEVICES))
@example(problem((1, 6, 5, 4), (6, 8, 2, 2), [2, 2]), True, VDEVICES[0])
@example(problem((1, 8, 5, 4), (8, 1, 4, 4), [2, 2], groups=8), True, VDEVICES[0])
@example(problem((1, 6, 9), (6, 1, 7), [4], padding=[3, 0]), True, VDEVICES[0])
def test_strides_padding_dilation_and_groups(problem, constant_weights, vdevice):
    """Also where a phase has fewer steps than the others, taps that some phases do not have, and
    phases of so few outputs that they share a vector."""
    x, w, attrs = problem
    out, origins = run_transposed(x, w, attrs, vdevice, constant_weights)
    assert_close(out, transposed(x, w, attrs))
    assert "generic" not in origins


@pytest.mark.parametrize(
    ("shape", "kernel", "changes", "origins"),
    [
        ((1, 16, 6, 6), (16, 8, 3, 3), {}, {"elementwise", "convolution"}),
        ((1, 16, 6, 6), (16, 2, 3, 3), {}, {"elementwise", "convolution"}),
        ((1, 16, 6, 6), (16, 1, 3, 3), {"groups": 16}, {"elementwise", "depthwise"}),
        ((1, 16, 6, 6), (16, 8, 3, 3), {"groups": 2}, {"elementwise", "convolution"}),
    ],
    ids=["dense", "few outputs", "depthwise", "grouped"],
)
def test_the_kernels_are_those_of_convolutions(shape, kernel, changes, origins):
    x, w, attrs = problem(shape, kernel, [2, 2], padding=[1] * 4, output_padding=[1, 1], **changes)
    out, found = run_transposed(x, w, attrs, HOST, True)
    assert_close(out, transposed(x, w, attrs))
    assert set(found) == origins


def test_what_follows_is_fused():
    """Bias, residual and activation are in the kernel of the transposed convolution."""
    x, w, attrs = problem((1, 6, 5, 4), (6, 8, 3, 3), [2, 2], padding=[1, 0, 0, 1])
    want = transposed(x, w, attrs)
    residual, bias = numbers(want.shape, seed=2), numbers((1, 8, 1, 1), seed=3)

    def block(x: Any, residual: Any) -> Any:
        upsampled = OP.add(OP.nn.conv2d_transpose(x, constant(w), **attrs), constant(bias))
        return OP.nn.relu(OP.add(upsampled, residual))

    mod = Prepare()(relax_module(block, x, residual))
    (out,), origins = run_module(mod, x, residual)
    assert_close(out, np.maximum(want + bias + residual, 0))
    # Both inputs become channels-last, and the result channels-first again.
    assert sorted(origins) == ["convolution", *["elementwise"] * 3]
