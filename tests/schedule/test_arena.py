"""Buffers take places where their vEUs write what they wrote before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import costs, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.rprogram.program import CELLS, TILE_RANGES
from tvm_rammer.schedule import POLICIES, Placed, Placement, plan_memory, synchronise
from tvm_rammer.schedule.arena import Arena
from tvm_rammer.schedule.owners import PIECES, owners_of

#: One task of each of two vEUs is complete, and nothing is alive.
FREE = np.array([1, 1], np.int32)


def owned(*veus: int) -> np.ndarray:
    """Owners of equal parts of a buffer, in order."""
    assert PIECES % len(veus) == 0
    return np.repeat(np.eye(2)[list(veus)], PIECES // len(veus), axis=0)


def place(arena: Arena, nbytes: int, *veus: int, free: np.ndarray = FREE) -> int:
    return arena.take(nbytes, free, free, owned(*veus))


def test_halves_of_other_sizes_meet_at_the_border_between_veus():
    arena = Arena(2, 4096)
    assert place(arena, 2048, 0, 1) == 0
    # The middle of 1024 bytes at the middle of 2048.
    assert place(arena, 1024, 0, 1) == 512
    assert place(arena, 512, 0, 1) == 768
    assert arena.nbytes == 2048


def test_what_one_veu_writes_lies_where_it_wrote():
    arena = Arena(2, 4096)
    place(arena, 2048, 0, 1)
    assert place(arena, 512, 1) == 1024
    assert place(arena, 512, 0) == 0


def test_the_last_owner_counts():
    arena = Arena(2, 2048)
    place(arena, 2048, 0, 1)
    assert place(arena, 2048, 1, 0) == 0
    assert place(arena, 1024, 0) == 1024


def test_an_arena_grows_where_others_hold_more_than_that():
    arena = Arena(2, 1536)
    place(arena, 1024, 1, 0)
    assert place(arena, 1024, 0, 1) == 512
    assert arena.nbytes == 1536


def test_it_does_not_grow_beyond_what_it_may_take():
    arena = Arena(2, 1024)
    place(arena, 1024, 1, 0)
    assert place(arena, 1024, 0, 1) == 0
    assert arena.nbytes == 1024


def test_bytes_that_are_in_use_are_not_given_away():
    arena = Arena(2, 4096)
    place(arena, 1024, 0, 1, free=np.array([2, 2], np.int32))
    assert arena.take(1024, FREE, FREE, owned(0, 1)) == 1024


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(0, 6), st.integers(0, 3)),
        max_size=30,
    ),
    st.integers(0, 40),
)
def test_no_two_buffers_that_are_alive_together_share_bytes(buffers, most):
    """Each is (lines, when it is written, for how long, owners), written in the order given."""
    arena = Arena(2, most * 64)
    patterns = [owned(0), owned(1), owned(0, 1), owned(1, 0)]
    alive: list[tuple[int, int, int]] = []
    now = 0
    for lines, pause, life, pattern in buffers:
        now += pause
        last = np.full(2, now + life, np.int32)
        nbytes = lines * 64
        offset = arena.take(nbytes, np.full(2, now, np.int32), last, patterns[pattern])
        assert offset % 64 == 0
        assert offset + nbytes <= arena.nbytes or not nbytes
        for start, stop, until in alive:
            assert until <= now or offset + nbytes <= start or stop <= offset or not nbytes
        alive.append((offset, offset + nbytes, now + life))


def footprint(*masks: int) -> tuple[int, ...]:
    assert TILE_RANGES % len(masks) == 0
    return tuple(mask for mask in masks for _ in range(TILE_RANGES // len(masks)))


LEFT, ALL = (1 << CELLS // 2) - 1, (1 << CELLS) - 1


def divided(made, veus):
    placed = tuple(tuple(Placed(n, 0, a, b, made.levels[n]) for n, a, b in mine) for mine in veus)
    return synchronise(made, Placement("test", placed))


def test_owners_are_those_who_write():
    made = graph(([], [(2, 1.0)]), ([0], [(2, 1.0)]))
    kernels = tuple(
        replace(op.candidates[0], footprints=(footprint(ALL),) * n + (footprint(LEFT, ALL ^ LEFT),))
        for n, op in enumerate(made.operators, 1)
    )
    operators = tuple(
        replace(op, candidates=(kernel,))
        for op, kernel in zip(made.operators, kernels, strict=True)
    )
    halves = divided(
        replace(made, operators=operators),
        ([(0, 0, 1), (1, 0, 2)], [(0, 1, 2)]),
    )
    owners = owners_of(halves)
    arena = [number for number, b in enumerate(halves.buffers) if b.space == "arena"]
    assert owners[arena[0]] == pytest.approx(owned(0, 1))
    for number, buffer in enumerate(halves.buffers):
        if buffer.space == "input":
            assert owners[number] == pytest.approx(np.full((PIECES, 2), 0.5))


@settings(max_examples=25)
@given(graphs(), st.integers(1, 5), st.sampled_from(sorted(POLICIES)))
def test_shares_of_owners_add_up(made, num_veus, policy):
    program = synchronise(made, POLICIES[policy](made, num_veus, costs()))
    owners = owners_of(program)
    assert owners.shape == (len(program.buffers), PIECES, num_veus)
    assert (owners >= 0).all()
    assert owners.sum(axis=2) == pytest.approx(1.0)


@settings(max_examples=25)
@given(graphs(max_operators=30), st.integers(1, 4), st.sampled_from(sorted(POLICIES)))
def test_a_limit_is_kept_wherever_it_can_be(made, num_veus, policy):
    program = synchronise(made, POLICIES[policy](made, num_veus, costs()))
    tight = plan_memory(program, 0).arena_bytes
    assert plan_memory(program, tight).arena_bytes <= tight
    assert tight <= plan_memory(program).arena_bytes
