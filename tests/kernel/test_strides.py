"""Kernels whose tensors are columns of a wider matrix are those of compact tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import VDEVICES, constant, legalized_func, numbers, run_prim_func
from tvm import relax

from tvm_rammer.kernel.strides import with_strides

OP = relax.op
QUICK = settings(max_examples=4)


def convolution(x: Any, size: int, groups: int = 1) -> Any:
    channels = int(x.ty.shape[3])
    weight = constant(numbers((channels, size, size, channels // groups)))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return OP.nn.relu(OP.nn.conv2d(x, weight, padding=size // 2, groups=groups, **layouts))


#: Operators on an image, by the rule that schedules them.
OPERATORS = {
    "convolution": lambda x: convolution(x, 1),
    "winograd": lambda x: convolution(x, 3),
    "depthwise": lambda x: convolution(x, 3, int(x.ty.shape[3])),
    "matmul": lambda x: OP.matmul(x, constant(numbers((int(x.ty.shape[3]), 24)))),
    "pooling": lambda x: OP.nn.max_pool2d(x, (3, 3), padding=1, layout="NHWC"),
    "reduction": lambda x: OP.nn.softmax(x),
    "elementwise": lambda x: OP.nn.relu(x),
}


def strides(shape: tuple[int, ...], pitch: int) -> tuple[int, ...]:
    """Of a tensor whose last axis is a row."""
    _, height, width, _ = shape
    return height * width * pitch, width * pitch, pitch, 1


@pytest.mark.parametrize("name", OPERATORS)
@QUICK
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9)),
    channels=st.sampled_from([16, 19, 32, 64]),
    gaps=st.tuples(*[st.sampled_from([0, 1, 16])] * 2),
    vdevice=st.sampled_from(VDEVICES),
)
def test_rows_that_lie_apart(name, shape, channels, gaps, vdevice):
    """Values, rule and tiling are the same; gaps between the rows of the result stay untouched."""
    x = numbers((*shape, channels))
    func = legalized_func(OPERATORS[name], x)
    last = len(func.params) - 1
    result = tuple(int(n) for n in func.params[last].shape)
    apart = {
        0: strides(x.shape, x.shape[-1] + gaps[0]),
        last: strides(result, result[-1] + gaps[1]),
    }
    weights = [numbers(tuple(int(n) for n in p.shape)) for p in func.params[1:last]]
    places = range(1, last)
    compact = run_prim_func(func, [x, *weights], places, vdevice)
    strided = run_prim_func(with_strides(func, apart), [x, *weights], places, vdevice)
    assert strided.origin == compact.origin
    assert_close(strided.outputs[0], np.array(compact.outputs[0]))
