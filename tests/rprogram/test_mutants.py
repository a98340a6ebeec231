"""``verify`` rejects exactly those plans that the brute-force oracle calls unsafe."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from fuzzing.mutants import MUTATIONS
from fuzzing.random_graphs import SHAPES, random_graph
from fuzzing.random_programs import random_program
from rprogram.oracle import is_safe

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import RProgram
from tvm_rammer.rprogram.verify import verify

MUTANTS_PER_CLASS = 170


def random_plan(rng: np.random.Generator) -> RProgram:
    shape = SHAPES[rng.integers(len(SHAPES))]
    graph = random_graph(rng, shape, int(rng.integers(5, 16)))
    return random_program(graph, int(rng.integers(1, 5)), rng)


def assert_agreement(plan: RProgram, where: object) -> bool:
    """``verify`` and the oracle say the same about ``plan``; returns whether it is safe."""
    safe, reason = is_safe(plan)
    try:
        verify(plan)
    except PlanError as error:
        assert not safe, f"{where}: the plan is safe, but verify says: {error}"
        assert "\n" not in str(error)
    else:
        assert safe, f"{where}: verify accepts a plan that is unsafe: {reason}"
    return safe


def test_verify_accepts_untouched_plans() -> None:
    for seed in range(1000):
        assert assert_agreement(random_plan(np.random.default_rng(seed)), seed)


@pytest.mark.parametrize("name", MUTATIONS)
def test_verify_agrees_with_the_oracle_on_mutants(name: str) -> None:
    rng = np.random.default_rng(sorted(MUTATIONS).index(name))
    verdicts: Counter[bool] = Counter()
    while verdicts.total() < MUTANTS_PER_CLASS:
        mutant = MUTATIONS[name](random_plan(rng), rng)
        if mutant is not None:
            verdicts[assert_agreement(mutant, (name, verdicts.total()))] += 1
    always_a_fault = name in ("task listed twice", "task missing")
    assert verdicts[False] >= MUTANTS_PER_CLASS // 5
    assert verdicts[True] >= (0 if always_a_fault else MUTANTS_PER_CLASS // 20)


def test_a_thousand_mutants_are_judged() -> None:
    assert len(MUTATIONS) * MUTANTS_PER_CLASS >= 1000
    assert MUTANTS_PER_CLASS >= 100


@pytest.mark.parametrize("shape", SHAPES)
def test_verify_agrees_on_mutants_of_a_large_plan(shape: str) -> None:
    rng = np.random.default_rng(SHAPES.index(shape))
    plan = random_program(random_graph(rng, shape, 200), 4, rng)
    assert assert_agreement(plan, shape)
    for name, mutation in MUTATIONS.items():
        mutant = mutation(plan, rng)
        if mutant is None:  # nothing is concatenated in a chain
            assert name == "moved part"
            assert all(buffer.space != "part" for buffer in plan.buffers)
        else:
            assert_agreement(mutant, (shape, name))
