from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tvm_rammer.kernel.work import Work
from tvm_rammer.testing.bench.slow_kernels import KernelTimes, SlowKernel, kernel_times
from tvm_rammer.vdevice import VDevice
from tvm_rammer.vdevice.ceilings import Ceilings

#: 2 GFLOP/s: half a second for each operator.
TOGETHER = Ceilings(2e9, 1.0, 1.0, 1.0, 1.0)


def facts(operator: str, count: int, seconds: float, least: float) -> Any:
    return SimpleNamespace(
        operator=operator,
        count=count,
        kernel=SimpleNamespace(origin="matmul"),
        total_seconds=count * seconds,
        roof=SimpleNamespace(seconds=least),
        work=Work(1e9, 0),
        working_set=0,
    )


def report(*kernels: Any, roofline: float | None = 0.5) -> Any:
    """As much of a kernel report as is read."""
    return SimpleNamespace(
        seconds=0.75, roofline_seconds=roofline, kernels=kernels, vdevice=VDevice("two cores")
    )


def test_what_loses_most_to_its_roofline_comes_first() -> None:
    found = kernel_times(
        report(facts("large", 1, 0.5, 0.375), facts("small", 2, 0.125, 0.03125)), TOGETHER, 1
    )
    small = SlowKernel("small", 2, "matmul", 250.0, 62.5)
    assert found == KernelTimes(
        750.0, 500.0, 1500.0, (small, SlowKernel("large", 1, "matmul", 500, 375))
    )


def test_ten_kernels_are_named() -> None:
    found = kernel_times(
        report(*(facts(f"op{n}", 1, 0.1 * n, 0.1) for n in range(20))), TOGETHER, 1
    )
    assert found and [kernel.operator for kernel in found.slowest][::9] == ["op19", "op10"]


def test_without_ceilings_there_is_nothing_to_compare() -> None:
    assert kernel_times(report(roofline=None), TOGETHER, 1) is None


def test_weights_that_no_cache_holds_are_read_from_memory() -> None:
    """64 MiB at 16 MiB/s take longer than two operators; 8 MiB stay in the last-level cache."""
    made = report(facts("op", 2, 0.5, 0.375))
    slow_memory = replace(TOGETHER, dram=float(16 << 20))
    found = [kernel_times(made, slow_memory, nbytes << 20) for nbytes in (8, 64)]
    assert [times and times.together for times in found] == [1000.0, 4000.0]
