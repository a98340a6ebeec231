"""What hangs on an operator: its part of the critical path and of the area, as plans change."""

from __future__ import annotations

from math import inf

import pytest

from tvm_rammer.machine import VDevice
from tvm_rammer.machine.vdevice import MemoryCosts
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.schedule import CostModel
from tvm_rammer.tuning.shares import PlannedTask, PlanShares

US = 1e-6
FREE = CostModel(point_to_point=0.0, barrier=0.0, launch=0.0)


def shares(*, outside: int = 0) -> PlanShares:
    """Operators of a tile each, of 10 and 4 us, side by side on two vEUs."""
    memory = MemoryCosts(transfer=0.0, transfer_byte=0.0)
    device = VDevice("test", num_veus=2, memory=memory)
    buffers = (
        Buffer("input", (4,), "float32", "input"),
        *(Buffer(f"result{k}", (4,), "float32", "output", k) for k in range(2)),
    )
    kernels = [RKernel(f"body{k}", 1, ("read", "write"), us * US) for k, us in enumerate((10, 4))]
    graph = OperatorGraph(
        "test",
        buffers,
        tuple(Operator(f"op{k}", (kernel,), (0, k + 1)) for k, kernel in enumerate(kernels)),
    )
    tasks = [PlannedTask(frozenset({k.name}), k.tile_time, outside) for k in kernels]
    return PlanShares([graph], tasks, device, FREE)


def test_the_critical_path_counts_besides_the_area():
    weights, seconds = shares()([inf, inf])
    assert seconds == pytest.approx(10 * US)
    assert weights == pytest.approx([(10 + 5) / 2 * US, 2 / 2 * US])


def test_what_is_on_it_changes_with_the_times():
    weights, seconds = shares()([2 * US, 4 * US])
    assert seconds == pytest.approx(4 * US)
    assert weights == pytest.approx([1 / 2 * US, (4 + 2) / 2 * US])


def test_outside_of_regions_operators_run_one_by_one():
    weights, seconds = shares(outside=2)([inf, inf])
    assert seconds == pytest.approx((10 + 2 * 14 / 2) * US)
    assert weights == pytest.approx([(7.5 + 10) * US, (1 + 4) * US])
