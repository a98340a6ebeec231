"""What loses most comes first: in the plan, with what was waited for, and beside the least."""

from __future__ import annotations

import pytest
from bench.plan_roofline import Demand
from bench.slow_operators import slow_operators

from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.rprogram import RKernel, ROperator, RProgram
from tvm_rammer.schedule.timeline import Span, Timeline

CEILINGS = Ceilings(1e9, 1e9, 1e9, 1e9, 1e9)


def program(*kernels: int) -> RProgram:
    """Operators of so many kernels; nothing else of the program is looked at."""
    operators = tuple(ROperator(f"op{n}", kernel, ()) for n, kernel in enumerate(kernels))
    rules = tuple(RKernel(f"rtask{n}", 1, (), origin=f"rule{n}") for n in range(1 + max(kernels)))
    return RProgram("plan", "sequential", (), rules, operators, ((), ()), 0)


def timeline(*spans: tuple[int, int, float, float]) -> Timeline:
    return Timeline(tuple(Span(veu, 0, op, a, b) for veu, op, a, b in spans), "measured", 2)


def test_an_operator_takes_until_its_last_task_ends() -> None:
    """The second begins when the first ends; a vEU that has less of it waits."""
    run = timeline((0, 0, 1.0, 2.0), (1, 0, 1.0, 1.5), (0, 1, 2.0, 2.5), (1, 1, 2.0, 6.0))
    needed = [Demand(0.5e9, {}), Demand(1e9, {"l2": 3e9})]
    slow, fast = slow_operators(program(0, 1), [run], needed, CEILINGS)
    assert (slow.operator, slow.rule, slow.limit) == ("op1", "rule1", "l2")
    assert (slow.milliseconds, slow.waiting, slow.roofline) == (4000.0, 1750.0, 3000.0)
    assert (fast.milliseconds, fast.waiting, fast.limit) == (1000.0, 250.0, "compute")


def test_operators_of_one_kernel_are_added_up() -> None:
    run = timeline((0, 0, 0.0, 1.0), (1, 0, 0.0, 1.0), (0, 1, 1.0, 3.0), (1, 1, 1.0, 3.0))
    (found,) = slow_operators(program(0, 0), [run], [Demand(1e9, {})] * 2, CEILINGS)
    assert (found.operator, found.count) == ("op0", 2)
    assert (found.milliseconds, found.waiting, found.roofline) == (3000.0, 0.0, 2000.0)


def test_of_several_runs_the_median_counts() -> None:
    runs = [timeline((0, 0, 0.0, end), (1, 0, 0.0, end)) for end in (1.0, 9.0, 2.0)]
    (found,) = slow_operators(program(0), runs, [Demand(1e9, {})], CEILINGS)
    assert found.milliseconds == pytest.approx(2000.0)


def test_ten_are_named() -> None:
    ends = [n * (n + 1) / 2 for n in range(1, 21)]
    spans = [(veu, n, ends[n - 1] if n else 0.0, ends[n]) for n in range(20) for veu in (0, 1)]
    found = slow_operators(
        program(*range(20)), [timeline(*spans)], [Demand(1.0, {})] * 20, CEILINGS
    )
    assert [slow.operator for slow in found] == [f"op{n}" for n in range(19, 9, -1)]


def test_reading_from_two_memories_is_limited_by_the_one_that_takes_longer() -> None:
    slow_memory = Ceilings(1e9, 1e9, 1e9, 1e9, 1e8)
    demand = Demand(1e8, {"l3": 2e8, "dram": 1e8})
    assert demand.limit(slow_memory) == "dram"
    assert demand.limit(CEILINGS) == "l3"
