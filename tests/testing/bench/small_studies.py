"""Studies to make tables of: a plan for every policy, times as given."""

from __future__ import annotations

from tvm_rammer.schedule import POLICIES
from tvm_rammer.testing.bench.slow_kernels import KernelTimes, SlowKernel
from tvm_rammer.testing.bench.study import BARRIERS, NO_WINOGRAD, PlanResult, Study, veus


def plan(milliseconds: float, ratio: float = 1.0, measured: float | None = 0.5) -> PlanResult:
    return PlanResult(milliseconds, (ratio, ratio, ratio), 1.0, 10, 4, 0.75, measured)


def small_study(auto_ms: float = 1.0, choices: int = 0) -> Study:
    plans = {name: plan(2.0) for name in POLICIES} | {
        "auto": plan(auto_ms, auto_ms / 2),
        BARRIERS: plan(3.0),
        NO_WINOGRAD: plan(5.0, 2.5),
        veus(1): plan(4.0),
    }
    makespans = {name: 4.0 for name in POLICIES}
    scaling = {
        "2": {**makespans, "auto": 4.0, "bound": 2.0},
        "64": {**makespans, "auto": 2.0, "bound": 1.0},
    }
    fast = {count: {**found, "auto": 5.0} for count, found in scaling.items()}
    slow = SlowKernel("conv", 2, "convolution", 3.0, 2.0)
    kernels = KernelTimes(4.0, 2.5, (slow,))
    fast = fast if choices else {}
    return Study(2, ("estf",), plans, 12.0, 0.25, kernels, choices, scaling, fast)
