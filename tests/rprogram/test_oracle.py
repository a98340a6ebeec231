"""The oracle knows each fault by its definition, and agrees with walking every interleaving."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from fuzzing.mutants import MUTATIONS
from fuzzing.random_graphs import SHAPES, random_graph
from fuzzing.random_programs import random_program
from hypothesis import given
from hypothesis import strategies as st
from rprogram.oracle import happens_before, is_safe, is_safe_by_enumeration

from tvm_rammer.rprogram import Buffer, RKernel, ROperator, RProgram, RTask, Wait
from tvm_rammer.rprogram.program import Mode, Space


def buffer(name: str, space: Space, offset: int = 0, index: int = 0, floats: int = 16) -> Buffer:
    return Buffer(name, (floats,), "float32", space, index, offset)


def program(
    buffers: list[Buffer],
    operators: list[tuple[list[int], list[int], int]],
    *veus: list[RTask],
    arena_bytes: int = 256,
) -> RProgram:
    """A program of operators ``(reads, writes, tiles)`` on the given lists of rTasks."""
    kernels, called = [], []
    for number, (reads, writes, tiles) in enumerate(operators):
        modes: list[Mode] = ["read"] * len(reads)
        modes += ["write"] * len(writes)
        kernels.append(RKernel(f"body{number}", tiles, tuple(modes)))
        called.append(ROperator(f"operator{number}", number, (*reads, *writes)))
    return RProgram(
        "test",
        "test",
        tuple(buffers),
        tuple(kernels),
        tuple(called),
        tuple(map(tuple, veus)),
        arena_bytes,
    )


CHAIN = [
    buffer("x", "input"),
    buffer("a", "arena"),
    buffer("b", "arena", 64),
    buffer("c", "arena", 128),
    buffer("y", "output"),
]
STEPS = [([0], [1], 1), ([1], [2], 1), ([2], [3], 1), ([3], [4], 1)]


def moved(index: int, offset: int) -> list[Buffer]:
    return [replace(b, offset=offset) if i == index else b for i, b in enumerate(CHAIN)]


def verdict(plan: RProgram) -> str:
    """The reason of :func:`is_safe`, which the other oracle shares or finds another one for."""
    safe, reason = is_safe(plan)
    assert is_safe_by_enumeration(plan)[0] == safe
    assert safe == (reason == "")
    return reason


def one_by_one(buffers: list[Buffer]) -> RProgram:
    return program(buffers, STEPS, [RTask(i, 0, 1) for i in range(4)])


def test_program_order_and_waits_are_happens_before() -> None:
    plan = program(
        CHAIN,
        STEPS,
        [RTask(0, 0, 1), RTask(2, 0, 1, (Wait(1, 1),))],
        [RTask(1, 0, 1, (Wait(0, 1),)), RTask(3, 0, 1, (Wait(0, 2),))],
    )
    expected = [[0, 1, 1, 1], [0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0]]
    assert happens_before(plan).astype(int).tolist() == expected
    assert verdict(plan) == ""


def test_bytes_may_be_used_again_when_their_reader_is_done() -> None:
    assert verdict(one_by_one(moved(3, offset=0))) == ""


def test_bytes_may_not_be_used_again_before() -> None:
    assert verdict(one_by_one(moved(2, offset=0))) == "operator1 writes b over its own a"
    steps = [([0], [1], 1), ([0], [2], 1), ([2], [3], 1), ([1, 3], [4], 1)]
    plan = program(moved(3, offset=0), steps, [RTask(i, 0, 1) for i in range(4)])
    assert verdict(plan) == "a reader of a may find another value"


def test_a_reader_waits_for_all_rtasks_of_the_producer() -> None:
    steps = [([0], [1], 2), ([1], [4], 1)]
    veus = [RTask(0, 0, 1), RTask(1, 0, 1)], [RTask(0, 1, 2)]
    assert verdict(program(CHAIN, steps, *veus)) == "rTasks 2 and 1 race for a byte"


def test_a_reader_does_not_come_before_its_producer() -> None:
    plan = program(CHAIN, [([0], [1], 1), ([1], [4], 1)], [RTask(1, 0, 1), RTask(0, 0, 1)])
    assert verdict(plan) == "a reader of a does not come after all of its producer"


def test_writers_of_the_same_bytes_are_ordered_even_if_nobody_reads() -> None:
    steps = [([0], [1], 1), ([0], [2], 1), ([0], [4], 1)]
    veus = [RTask(0, 0, 1), RTask(2, 0, 1)], [RTask(1, 0, 1)]
    assert verdict(program(moved(2, offset=0), steps, *veus)) == "rTasks 0 and 2 race for a byte"
    assert verdict(program(CHAIN, steps, *veus)) == ""


def test_an_intruder_before_the_producer_is_harmless() -> None:
    steps = [([0], [2], 1), ([0], [1], 1), ([1], [4], 1)]
    tasks = [RTask(i, 0, 1) for i in range(3)]
    assert verdict(program(moved(2, offset=0), steps, tasks)) == ""


def test_an_intruder_between_two_rtasks_of_the_producer_is_not() -> None:
    steps = [([0], [2], 1), ([0], [1], 2), ([1], [4], 1)]
    tasks = [RTask(1, 0, 1), RTask(0, 0, 1), RTask(1, 1, 2), RTask(2, 0, 1)]
    plan = program(moved(2, offset=0), steps, tasks)
    assert verdict(plan) == "a reader of a may find another value"


def test_rtasks_of_one_operator_need_no_order() -> None:
    plan = program(CHAIN, [([0], [4], 2)], [RTask(0, 0, 1)], [RTask(0, 1, 2)])
    assert verdict(plan) == ""


def test_zero_bytes_need_no_order() -> None:
    buffers = [*CHAIN, buffer("empty", "arena", floats=0)]
    steps = [([0], [5], 1), ([5], [4], 1)]
    assert verdict(program(buffers, steps, [RTask(0, 0, 1)], [RTask(1, 0, 1)])) == ""


def test_an_output_keeps_its_value() -> None:
    buffers = [*CHAIN, buffer("again", "output")]
    steps = [([0], [4], 1), ([0], [5], 1)]
    plan = program(buffers, steps, [RTask(0, 0, 1), RTask(1, 0, 1)])
    assert verdict(plan) == "y may hold another value at the end"


@pytest.mark.parametrize(
    ("buffers", "steps", "reason"),
    [
        (CHAIN, [([0], [1], 1)], "nobody writes y"),
        (CHAIN, [([1], [4], 1)], "nobody writes a"),
        (CHAIN, [([0], [4], 1), ([0], [4], 1)], "y has two producers"),
        (CHAIN, [([1], [0], 1), ([0], [4], 1)], "operator0 writes x"),
        (moved(1, offset=224), [([0], [4], 1)], "a lies outside of the arena"),
        (moved(1, offset=-64), [([0], [4], 1)], "a lies outside of the arena"),
        (moved(1, offset=32), [([0], [4], 1)], "a is not aligned"),
        (moved(4, offset=64), [([0], [4], 1)], "y does not start where its tensor does"),
    ],
)
def test_every_byte_has_a_place_and_a_producer(
    buffers: list[Buffer], steps: list[tuple[list[int], list[int], int]], reason: str
) -> None:
    assert verdict(program(buffers, steps, [RTask(i, 0, 1) for i in range(len(steps))])) == reason


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ([RTask(0, 0, 2)], ""),
        ([RTask(0, 1, 2), RTask(0, 0, 1)], ""),
        ([RTask(0, 0, 1)], "operator 0 does not run every tile exactly once"),
        ([RTask(0, 0, 2), RTask(0, 1, 2)], "operator 0 does not run every tile exactly once"),
        ([RTask(0, 0, 3)], "operator 0 has no tiles 0 to 3"),
        ([RTask(0, 0, 2), RTask(0, 1, 1)], "operator 0 has no tiles 1 to 1"),
        ([RTask(1, 0, 2)], "there is no operator 1"),
    ],
)
def test_every_tile_runs_exactly_once(tasks: list[RTask], reason: str) -> None:
    assert verdict(program(CHAIN, [([0], [4], 2)], tasks)) == reason


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((), (), ""),
        ((Wait(1, 0), Wait(0, 0)), (Wait(0, 1), Wait(0, 1)), ""),
        ((Wait(0, 1),), (), "cyclic happens-before"),
        ((Wait(1, 1),), (Wait(0, 1),), "cyclic happens-before"),
        ((Wait(1, 2),), (), "vEU 1 never completes 2 rTasks"),
        ((Wait(1, -1),), (), "vEU 1 never completes -1 rTasks"),
        ((Wait(2, 1),), (), "there is no vEU 2 to wait for"),
    ],
)
def test_every_wait_is_met(first: tuple[Wait, ...], second: tuple[Wait, ...], reason: str) -> None:
    plan = program(CHAIN, [([0], [4], 2)], [RTask(0, 0, 1, first)], [RTask(0, 1, 2, second)])
    assert verdict(plan) == reason


@st.composite
def small_programs(draw: st.DrawFn) -> RProgram:
    """Two to four operators of at most two rTasks, with any places, waits and offsets."""
    number = draw(st.integers(2, 4))
    buffers = [buffer("x", "input")]
    steps: list[tuple[list[int], list[int], int]] = []
    veus: list[list[RTask]] = [[] for _ in range(draw(st.integers(1, 3)))]
    for operator in range(number):
        reads = draw(st.sets(st.integers(max(0, operator - 2), operator), max_size=2))
        space: Space = "output" if operator == number - 1 else "arena"
        place = draw(st.sampled_from([0, 64, 128]))
        size = draw(st.sampled_from([16, 16, 16, 32, 0]))
        buffers.append(buffer(f"b{operator}", space, place * (space == "arena"), floats=size))
        tiles = draw(st.integers(1, 2))
        steps.append((sorted(reads), [operator + 1], tiles))
        for tile in range(tiles):
            waits = tuple(
                Wait(veu, draw(st.integers(0, len(tasks))))
                for veu, tasks in enumerate(veus)
                if draw(st.booleans())
            )
            tasks = draw(st.sampled_from(veus))
            back = draw(st.sampled_from([0, 0, 0, 1]))
            tasks.insert(max(0, len(tasks) - back), RTask(operator, tile, tile + 1, waits))
    return program(buffers, steps, *veus)


@given(small_programs())
def test_both_oracles_agree_on_any_small_program(plan: RProgram) -> None:
    assert is_safe(plan)[0] == is_safe_by_enumeration(plan)[0]


def test_both_oracles_agree_on_mutants_of_small_programs() -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(300):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, SHAPES[seed % len(SHAPES)], int(rng.integers(2, 5)))
        plan = random_program(graph, int(rng.integers(1, 4)), rng)
        if plan.num_tasks > 7:
            continue
        for mutation in MUTATIONS.values():
            mutant = mutation(plan, rng)
            if mutant is not None:
                safe, reason = is_safe(mutant)
                assert is_safe_by_enumeration(mutant)[0] == safe, (seed, reason)
                verdicts[safe] += 1
    assert min(verdicts[True], verdicts[False]) >= 100


def test_a_plan_of_a_thousand_rtasks_is_judged() -> None:
    rng = np.random.default_rng(0)
    plan = random_program(random_graph(rng, "ladder", 500), 4, rng)
    assert plan.num_tasks >= 1000
    assert is_safe(plan) == (True, "")
