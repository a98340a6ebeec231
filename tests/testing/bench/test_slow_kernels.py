from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tvm_rammer.testing.bench.slow_kernels import KernelTimes, SlowKernel, kernel_times


def facts(operator: str, count: int, seconds: float, least: float) -> Any:
    return SimpleNamespace(
        operator=operator,
        count=count,
        kernel=SimpleNamespace(origin="matmul"),
        total_seconds=count * seconds,
        roof=SimpleNamespace(seconds=least),
    )


def report(*kernels: Any, roofline: float | None = 0.5) -> Any:
    """As much of a kernel report as is read."""
    return SimpleNamespace(seconds=0.75, roofline_seconds=roofline, kernels=kernels)


def test_what_loses_most_to_its_roofline_comes_first() -> None:
    found = kernel_times(report(facts("large", 1, 0.5, 0.375), facts("small", 2, 0.125, 0.03125)))
    small = SlowKernel("small", 2, "matmul", 250.0, 62.5)
    assert found == KernelTimes(750.0, 500.0, (small, SlowKernel("large", 1, "matmul", 500, 375)))


def test_ten_kernels_are_named() -> None:
    found = kernel_times(report(*(facts(f"op{n}", 1, 0.1 * n, 0.1) for n in range(20))))
    assert found and [kernel.operator for kernel in found.slowest][::9] == ["op19", "op10"]


def test_without_ceilings_there_is_nothing_to_compare() -> None:
    assert kernel_times(report(roofline=None)) is None
