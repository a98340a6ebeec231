"""Elementary functions are as exact as libm's to single precision, at the edges too."""

import re

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_rammer.kernel.elementary import vectorisable
from tvm_rammer.vdevice import host_target

EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 88.72, 88.73, 1e30, -87.3, -87.4, -104.0, -1e30, 1e-30],
    np.float32,
)
RANDOM = np.random.default_rng(0)
VALUES = np.concatenate(
    [
        EDGES,
        np.linspace(-90, 90, 20001, dtype=np.float32),
        np.linspace(-1, 1, 20001, dtype=np.float32),
        RANDOM.standard_normal(10000).astype(np.float32) * 1e-4,
    ]
)


def evaluate(function, values):
    x = te.placeholder((len(values),), name="x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i: function(x[i]))])
    rewritten = vectorisable(func)
    module = tvm.compile(rewritten.with_attr("global_symbol", "main"), host_target())
    result = tvm.runtime.tensor(np.zeros_like(values))
    module["main"](tvm.runtime.tensor(values), result)
    return rewritten, result.numpy()


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (tirx.exp, np.exp),
        (tirx.tanh, np.tanh),
        (tirx.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
        (lambda x: tirx.pow(x, tirx.const(0.75, "float32")), lambda x: x**0.75),
    ],
    ids=["exp", "tanh", "sigmoid", "pow 3/4"],
)
def test_agrees_with_double_precision(function, wanted):
    rewritten, got = evaluate(function, VALUES)
    assert not re.search(r"T\.(exp|tanh|sigmoid|pow)\(", rewritten.script())
    with np.errstate(all="ignore"):
        want = wanted(VALUES.astype(np.float64))
        want = want.astype(np.float32).astype(np.float64)
    # Subnormal results are zero.
    want = np.where(np.abs(want) < np.finfo(np.float32).tiny, 0.0, want)
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=np.finfo(np.float32).tiny)


def test_other_powers_and_types_stay_as_they_are():
    for dtype, exponent in (("float32", 0.5), ("float64", 0.75)):
        x = te.placeholder((4,), dtype, name="x")
        power = te.compute(x.shape, lambda i: tirx.pow(x[i], tirx.const(exponent, dtype)))  # noqa: B023
        func = te.create_prim_func([x, power])
        tvm.ir.assert_structural_equal(vectorisable(func), func)
