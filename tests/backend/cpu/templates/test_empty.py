"""Tensors without elements: nothing to compute, or sums of nothing."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runs import VDEVICES, constant, numbers, run_relax
from tvm import relax

OP = relax.op
W, SCALE = numbers((16, 32)), numbers((16,))
ROWS = np.zeros(0, "int64")

#: Relax on inputs, the inputs, and the result.
CASES = {
    "no rows": (lambda x: OP.matmul(x, constant(W)), [(0, 16)], np.zeros((0, 32))),
    "no sums": (OP.matmul, [(3, 0), (0, 5)], np.zeros((3, 5))),
    "no columns": (OP.matmul, [(3, 4), (4, 0)], np.zeros((3, 0))),
    "no batch": (OP.matmul, [(0, 3, 4), (0, 4, 5)], np.zeros((0, 3, 5))),
    "sum of nothing": (lambda x: OP.sum(x, [1]), [(3, 0, 4)], np.zeros((3, 4))),
    "sum of some": (lambda x: OP.sum(x, [2]), [(3, 0, 4)], np.zeros((3, 0))),
    "squares of nothing": (
        lambda x: OP.sum(OP.multiply(x, x), [-1], keepdims=True),
        [(3, 4, 0)],
        np.zeros((3, 4, 1)),
    ),
    "softmax": (OP.nn.softmax, [(0, 5)], np.zeros((0, 5))),
    "layer norm": (
        lambda x: OP.nn.layer_norm(x, constant(SCALE), constant(SCALE), -1),
        [(0, 16)],
        np.zeros((0, 16)),
    ),
    "pool": (
        lambda x: OP.nn.max_pool2d(x, 2, layout="NHWC"),
        [(0, 4, 4, 8)],
        np.zeros((0, 3, 3, 8)),
    ),
    "depthwise": (
        lambda x: OP.nn.conv2d(
            x,
            constant(numbers((8, 3, 3, 1))),
            groups=8,
            data_layout="NHWC",
            kernel_layout="OHWI",
        ),
        [(0, 5, 5, 8)],
        np.zeros((0, 3, 3, 8)),
    ),
    "rows of a table": (lambda x: OP.take(x, constant(ROWS), 0), [(4, 3)], np.zeros((0, 3))),
    "transposition": (lambda x: OP.permute_dims(x, [1, 0]), [(0, 5)], np.zeros((5, 0))),
    "broadcast": (OP.add, [(3, 0), (1, 1)], np.zeros((3, 0))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("vdevice", VDEVICES[:2], ids=lambda vdevice: str(vdevice.vector_bytes))
def test_nothing_to_compute(name, vdevice):
    build, shapes, want = CASES[name]
    inputs = [numbers(shape, seed=k) for k, shape in enumerate(shapes)]
    (out,), _ = run_relax(build, *inputs, vdevice=vdevice)
    np.testing.assert_array_equal(out, want)
