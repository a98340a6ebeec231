"""The bound of an operator is the roofline of the algorithm that needs least."""

from __future__ import annotations

import pytest
from kernel_runs import HOST, constant, legalized_func, numbers
from tvm import relax

from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.tuning.least_seconds import least_seconds
from tvm_rammer.tuning.task import Task

OP = relax.op
#: Memory that takes no time, and one that takes all.
COMPUTING = Ceilings(1e9, 1e18, 1e18, 1e18, 1e18)
READING = Ceilings(1e18, 1e9, 1e9, 1e9, 1e9)


def product(winograd_tolerance: float) -> Task:
    x, w = numbers((6, 64)), numbers((64, 128), seed=1)
    func = legalized_func(lambda x: OP.matmul(x, constant(w)), x)
    return Task(func, (1,), HOST, winograd_tolerance)


def convolution(winograd_tolerance: float) -> Task:
    x, w = numbers((1, 16, 16, 64)), numbers((64, 3, 3, 64), seed=1)
    attributes = {"padding": (1, 1, 1, 1), "data_layout": "NHWC", "kernel_layout": "OHWI"}
    func = legalized_func(lambda x: OP.nn.conv2d(x, constant(w), **attributes), x)
    return Task(func, (1,), HOST, winograd_tolerance)


def test_a_product_takes_its_multiply_adds():
    assert least_seconds(product(5e-5), COMPUTING) == pytest.approx(2 * 6 * 64 * 128 / 1e9)


def test_memory_counts_where_it_takes_longer():
    nbytes = 4 * (6 * 64 + 64 * 128 + 6 * 128)
    assert least_seconds(product(5e-5), READING) == pytest.approx(nbytes / 1e9)


def test_a_convolution_takes_those_of_winograd_and_not_less():
    direct = 2 * 16 * 16 * 64 * 64 * 9 / 1e9
    assert least_seconds(convolution(0.0), COMPUTING) == pytest.approx(direct, rel=0.05)
    # F(4 x 4, 3 x 3) multiplies a quarter as often, and transforms.
    assert direct / 4 < least_seconds(convolution(5e-5), COMPUTING) < direct / 2


def test_a_slow_memory_makes_the_direct_convolution_the_bound():
    # Winograd's needs what it transforms besides.
    direct, either = (least_seconds(convolution(each), READING) for each in (0.0, 5e-5))
    assert direct == either
