"""Segments say of every byte what an array of bytes says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule.segments import Segments

BYTES = 40


def buffer(start: int, edges: list[int], last: int, veus: list[int]) -> Segments:
    """Adjacent pieces between the edges, each written by one of two vEUs."""
    of = Segments.of(np.array(edges), np.array([last, last], np.int32), np.eye(2)[veus])
    return of.moved(start)


def by_byte(segments: Segments) -> tuple[np.ndarray, np.ndarray]:
    """Last access and share of vEU 1 of each byte; -1 where there is no segment."""
    last, owner = np.full(BYTES, -1), np.full(BYTES, -1.0)
    for number, (start, stop) in enumerate(zip(segments.starts, segments.stops, strict=True)):
        assert start < stop and (last[start:stop] == -1).all()
        last[start:stop] = segments.last[0, number]
        owner[start:stop] = segments.owners[1, number]
    assert (np.diff(segments.starts) > 0).all()
    return last, owner


@st.composite
def some_segments(draw):
    """Buffers with gaps between them, put together in any order."""
    segments, buffers, start = Segments.none(2), [], 0
    while start < BYTES - 10:
        start += draw(st.integers(0, 5))
        sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        veus = draw(st.lists(st.integers(0, 1), min_size=len(sizes), max_size=len(sizes)))
        edges = [0, *np.cumsum(sizes).tolist()]
        buffers.append(buffer(start, edges, draw(st.integers(0, 3)), veus))
        start += edges[-1]
    for one in draw(st.permutations(buffers)):
        segments = segments.joined_by(one)
    return segments


def test_pieces_with_the_same_owners_are_one_segment():
    segments = buffer(8, [0, 2, 4, 6], 1, [0, 0, 1])
    assert segments.edges.tolist() == [8, 12, 14]
    assert segments.borders().tolist() == [12]


def test_nobody_takes_unwritten_bytes_from_another():
    segments = Segments.none(2).joined_by(Segments.unwritten(8, 16, 2))
    assert segments.written_before(np.array([8, 12, 16]), np.array([1])).tolist() == [[0, 4, 8]]


@given(some_segments(), st.integers(0, BYTES), st.integers(0, BYTES))
def test_bytes_that_are_taken_out_are_gone_and_no_others(segments, start, length):
    last, owner = by_byte(segments)
    stop = min(start + length, BYTES)
    if stop > start:
        segments = segments.without(start, stop)
    last[start:stop], owner[start:stop] = -1, -1
    found = by_byte(segments)
    assert (found[0] == last).all() and (found[1] == owner).all()


@given(some_segments(), st.integers(0, 3))
def test_runs_are_as_long_as_chosen_segments_touch(segments, most):
    chosen = segments.last[0] <= most
    last, _ = by_byte(segments)
    inside = np.concatenate(([False], (last >= 0) & (last <= most), [False]))
    edges = np.flatnonzero(np.diff(inside.astype(int)))
    lows, highs = segments.runs(chosen)
    assert lows.tolist() == edges[::2].tolist()
    assert highs.tolist() == edges[1::2].tolist()


@given(some_segments())
def test_written_before_counts_bytes(segments):
    """Up to points within segments; bytes outside of them are nobody's."""
    _, owner = by_byte(segments)
    points = np.flatnonzero(owner >= 0)
    for veu, (before,) in enumerate(segments.written_before(points, [v]) for v in (0, 1)):
        counted = np.concatenate(([0], (owner == veu).cumsum()))[points]
        assert before == pytest.approx(counted)


@given(some_segments())
def test_borders_are_where_owners_change(segments):
    change = (np.diff(segments.owners[0]) != 0).nonzero()[0] + 1
    assert segments.borders().tolist() == segments.starts[change].tolist()
