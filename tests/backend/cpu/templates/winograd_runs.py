"""What the tests of Winograd's rules share: convolutions with channels last, and their results."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_runs import Run, constant, run_prim_func
from tvm import relax, tirx

from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution, match_convolution
from tvm_rammer.kernel.scheduled import Packing


def convolve(
    x: np.ndarray, weight: np.ndarray, padding=(0, 0, 0, 0), strides=(1, 1), groups=1
) -> np.ndarray:
    """In float64."""
    top, left, bottom, right = padding
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[1:3], axis=(1, 2))
    windows = windows[:, :: strides[0], :: strides[1]]
    windows = windows.reshape(*windows.shape[:3], groups, -1, *weight.shape[1:3])
    weight = weight.astype(np.float64).reshape(groups, -1, *weight.shape[1:])
    results = np.einsum("nyxgiab,goabi->nyxgo", windows, weight)
    return results.reshape(*results.shape[:3], -1)


def conv2d(x: Any, weight: Any, **attrs: Any) -> Any:
    """The weights are constants if they are an array."""
    weight = constant(weight) if isinstance(weight, np.ndarray) else weight
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return relax.op.nn.conv2d(x, weight, **{**layouts, **attrs})


def convolution(func: tirx.PrimFunc) -> PlainConvolution:
    """The convolution, whose weights are parameter 1, that a function is."""
    found = match_convolution(func, frozenset([1]))
    assert found is not None
    return found


def run_packed(scheduled: tirx.PrimFunc, inputs: list[np.ndarray], packing: Packing) -> Run:
    """Run a convolution that is scheduled already and whose weights are parameter 1."""
    packed = [packing(a) if k == 1 else a for k, a in enumerate(inputs)]
    return run_prim_func(scheduled.with_attr("tirx.is_scheduled", True), packed)
