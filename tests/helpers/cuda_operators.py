"""Operators on CUDA as stock TVM schedules them, for tests that need no network."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir import dlight

TARGET = tvm.target.Target(
    {
        "kind": "cuda",
        "arch": "sm_90",
        "max_num_threads": 256,
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    },
    host="llvm",
)


def scheduled(name: str, *tensors: te.Tensor) -> tvm.IRModule:
    """A module of one PrimFunc, scheduled by dlight."""
    func = te.create_prim_func(tensors).with_attr("global_symbol", name)
    rules = (dlight.gpu.Matmul(), dlight.gpu.GEMV(), dlight.gpu.Reduction())
    rules += (dlight.gpu.GeneralReduction(), dlight.gpu.Fallback())
    with TARGET:
        return dlight.ApplyDefaultSchedule(*rules)(tvm.IRModule({name: func}))


def operator(kind: str) -> tuple[tvm.IRModule, list[np.ndarray], np.ndarray]:
    """A scheduled operator, its inputs and what it computes."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32")

    if kind == "matmul":
        a, b = normal(64, 96), normal(96, 128)
        x, y = (te.placeholder(v.shape, "float32") for v in (a, b))
        return scheduled(kind, x, y, topi.nn.matmul(x, y)), [a, b], a @ b
    if kind == "conv":
        a, b = normal(1, 8, 10, 10), normal(16, 8, 3, 3)
        x, y = (te.placeholder(v.shape, "float32") for v in (a, b))
        windows = np.lib.stride_tricks.sliding_window_view(a, (3, 3), (2, 3))
        result = np.einsum("nchwij,ocij->nohw", windows, b)
        return scheduled(kind, x, y, topi.nn.conv2d_nchw(x, y, 1, 0, 1)), [a, b], result
    a = normal(24, 333)
    x = te.placeholder(a.shape, "float32")
    if kind == "softmax":
        e = np.exp(a - a.max(1, keepdims=True))
        return scheduled(kind, x, topi.nn.softmax(x)), [a], e / e.sum(1, keepdims=True)
    if kind == "sum":
        return scheduled(kind, x, topi.sum(x, 1)), [a], a.sum(1)
    assert kind == "tanh"
    return scheduled(kind, x, topi.tanh(x)), [a], np.tanh(a)


OPERATORS = ("matmul", "conv", "softmax", "sum", "tanh")
