"""Inside of a region subnormal numbers count as zero, on every vEU; outside they stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer

SMALL = np.float32(1e-40)


@I.ir_module(s_tir=True)
class Quadrupled:
    @R.function
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.matmul(y, w)
            R.output(z)
        return z


def quadrupled(x: np.ndarray, num_veus: int) -> np.ndarray:
    library = tvm_rammer.build(
        Quadrupled, policy="sequential", num_veus=num_veus, oversubscribe=True
    )
    assert library.programs
    model = library.create()
    model.set_input("x", x)
    model.set_input("w", 2 * np.eye(64, dtype="float32"))
    model.run()
    return model.get_output(0).numpy()


@pytest.mark.parametrize("num_veus", [1, 2])
def test_subnormal_numbers_count_as_zero(num_veus):
    x = np.full((64, 64), SMALL)
    x[::2] = 1.5
    want = np.where(x == SMALL, np.float32(0), 4 * x)
    np.testing.assert_array_equal(quadrupled(x, num_veus), want)


def test_the_caller_keeps_its_subnormal_numbers():
    quadrupled(np.ones((64, 64), "float32"), 1)
    assert float(SMALL * np.float32(2)) == pytest.approx(2e-40, rel=1e-4)
