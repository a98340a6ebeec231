from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fuzzing.random_graphs import SHAPES, random_graph
from graphs import costs, graph, graphs
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.rprogram import ALIGNMENT
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.schedule import (
    POLICIES,
    Placed,
    Placement,
    memory_report,
    plan_memory,
    synchronise,
)

ONE = [(1, 1.0)]


def program_of(made, *veus):
    """Every operator whole, on the vEU that lists it."""
    placed = tuple(tuple(Placed(n, 0, 0, 1, made.levels[n]) for n in mine) for mine in veus)
    return plan_memory(synchronise(made, Placement("test", placed)))


def offsets(program):
    return [buffer.offset for buffer in program.buffers if buffer.space == "arena"]


def planned(made, policy, num_veus):
    return plan_memory(synchronise(made, POLICIES[policy](made, num_veus, costs())))


def test_a_chain_takes_two_buffers():
    made = graph(([], ONE), *[([n], ONE) for n in range(5)])
    program = program_of(made, range(6))
    assert offsets(program) == [0, 256, 0, 256, 0]
    assert program.arena_bytes == 512


def test_bytes_are_not_shared_without_an_order():
    """Two chains on two vEUs: no task of one happens before one of the other."""
    chains = (([], ONE), ([], ONE), ([0], ONE), ([1], ONE), ([2], ONE), ([3], ONE))
    made = graph(*chains, ([4, 5], ONE))
    alone = program_of(made, (0, 2, 4, 1, 3, 5, 6))
    beside = program_of(made, (0, 2, 4, 6), (1, 3, 5))
    assert alone.arena_bytes == 3 * 256
    assert beside.arena_bytes == 4 * 256
    verify(beside)


def test_every_task_of_the_writer_counts():
    """Operator 2 writes on both vEUs; only its task on vEU 0 comes after the reader of buffer 0."""
    made = graph(([], ONE), ([0], ONE), ([], [(2, 1.0)]), ([1, 2], ONE))
    veus = (
        tuple(Placed(n, 0, 0, 1, n) for n in range(4)),
        (Placed(2, 0, 1, 2, 2),),
    )
    program = plan_memory(synchronise(made, Placement("test", veus)))
    assert offsets(program) == [0, 256, 512]
    verify(program)


def test_a_result_that_nobody_reads_has_a_life_too():
    made = graph(([], ONE), ([], ONE), ([1], ONE))
    assert offsets(program_of(made, (0,), (1, 2))) == [0, 256]
    assert offsets(program_of(made, (0, 1, 2))) == [0, 0]


def test_buffers_without_bytes_take_no_place():
    made = graph(([], ONE), ([0], ONE))
    empty = tuple(replace(b, shape=(0,)) for b in made.buffers)
    program = program_of(replace(made, buffers=empty), (0, 1))
    assert (program.arena_bytes, offsets(program)) == (0, [0])


def test_the_largest_first_each_at_the_lowest_place_that_is_free():
    made = graph(
        ([], ONE),  # 128 bytes, free after operator 3
        ([], ONE),  # 256 bytes, alive to the end
        ([], ONE),  # 64 bytes, free after operator 3
        ([0, 2], ONE),
        ([3], ONE),  # 64 bytes
        ([1, 4], ONE),
    )
    sizes = {1: 32, 2: 64, 3: 16, 4: 64, 5: 16}
    buffers = tuple(replace(b, shape=(sizes.get(n, 64),)) for n, b in enumerate(made.buffers))
    program = program_of(replace(made, buffers=buffers), range(6))
    # The results of operators 0 and 3 have 128 and 256 bytes.
    assert offsets(program) == [512, 0, 640, 256, 512]


def test_the_report_compares():
    made = graph(([], ONE), *[([n], ONE) for n in range(5)])
    report = memory_report(program_of(made, range(6)))
    assert (report.arena_bytes, report.intermediate_bytes, report.peak_bytes) == (512, 1280, 512)


@given(graphs(), st.integers(1, 16), st.sampled_from(sorted(POLICIES)))
def test_planned_arenas_are_safe_aligned_and_between_their_bounds(made, num_veus, policy):
    program = planned(made, policy, num_veus)
    verify(program)
    report = memory_report(program)
    assert all(offset % ALIGNMENT == 0 for offset in offsets(program))
    assert report.peak_bytes <= program.arena_bytes <= report.intermediate_bytes
    assert plan_memory(program) == program


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("num_veus", [2, 4])
def test_an_arena_is_near_the_peak_of_live_bytes(policy, num_veus):
    """The mean over all shapes of graphs; what fragments is the random mix of sizes."""
    reports = [
        memory_report(planned(random_graph(seed, shape, 200), policy, num_veus))
        for shape in SHAPES
        for seed in range(5)
    ]
    assert np.mean([r.arena_bytes / r.peak_bytes for r in reports if r.peak_bytes]) < 1.3
