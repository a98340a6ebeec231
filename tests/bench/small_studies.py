"""Studies to make tables of: a plan for every policy, times as given."""

from __future__ import annotations

from bench.scaling import Scaling
from bench.slow_operators import SlowOperator
from bench.study import (
    BARRIERS,
    NO_WINOGRAD,
    KernelTimes,
    PlanResult,
    PlanRoofline,
    Study,
    veus,
)

from tvm_rammer.schedule import POLICIES


def plan(milliseconds: float, ratio: float = 1.0, measured: float | None = 0.5) -> PlanResult:
    return PlanResult(milliseconds, (ratio, ratio, ratio), 1.0, 10, 4, 0.75, measured)


def small_study(auto_ms: float = 1.0) -> Study:
    plans = {name: plan(2.0) for name in POLICIES} | {
        "auto": plan(auto_ms, auto_ms / 2),
        BARRIERS: plan(3.0),
        NO_WINOGRAD: plan(5.0, 2.5),
        veus(1): plan(4.0),
    }
    slow = SlowOperator("conv", 2, "convolution", 3.0, 0.125, 2.0, "compute")
    kernels = KernelTimes(4.0, 2.5)
    roofline = PlanRoofline(1.25, (1.6, 1.5, 1.75), (1.25, 1.0, 1.5), 1.4)
    return Study(2, ("estf",), plans, 12.0, 0.25, kernels, roofline, (slow,))


def small_scaling(choices: int = 0) -> Scaling:
    makespans = {name: 4e-3 for name in POLICIES}
    least = {"bound": 2e-3, "critical path": 1e-3, "work": 2e-3, "bandwidth": 5e-4}
    found = {
        "2": {**makespans, "auto": 4e-3, **least},
        "64": {**makespans, "auto": 2e-3, **least, "bound": 1e-3, "work": 1e-4},
    }
    fast = {count: {**times, "auto": 5e-3} for count, times in found.items()}
    return Scaling(1234, choices, found, fast if choices else {})
