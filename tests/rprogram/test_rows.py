"""The bytes of buffers and parts, against sets of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.rprogram.rows import Rows, pieces, row_strides


@st.composite
def some_rows(draw: st.DrawFn) -> Rows:
    length = draw(st.integers(0, 6))
    return Rows(
        draw(st.sampled_from(["arena", "output 0"])),
        draw(st.integers(0, 12)),
        length,
        draw(st.integers(1, 4)),
        length + draw(st.integers(0, 5)),
    )


def bytes_of(rows: Rows) -> set[tuple[str, int]]:
    return {
        (rows.space, rows.start + row * rows.pitch + byte)
        for row in range(rows.count)
        for byte in range(rows.length)
    }


@given(some_rows(), some_rows())
def test_rows_overlap_if_they_share_a_byte(first, second):
    assert first.overlaps(second) == bool(bytes_of(first) & bytes_of(second))


@given(st.lists(some_rows(), max_size=6))
def test_pieces_are_the_bytes_in_the_same_buffers(rows):
    """Sets of pieces intersect, and contain each other, as the sets of bytes do."""
    found, count = pieces(rows)
    assert len(found) == len(rows)
    for first, mine in zip(rows, found, strict=True):
        assert list(mine) == sorted(set(mine))
        assert all(0 <= piece < count for piece in mine)
        assert bool(len(mine)) == bool(bytes_of(first))
        for second, theirs in zip(rows, found, strict=True):
            shared = bytes_of(first) & bytes_of(second)
            assert bool(set(mine) & set(theirs)) == bool(shared)
            assert (set(mine) <= set(theirs)) == (bytes_of(first) <= bytes_of(second))


def test_rows_of_a_part_are_one_piece():
    left, right = Rows("arena", 0, 4, 100, 8), Rows("arena", 4, 4, 100, 8)
    found, _ = pieces([left, right, Rows("arena", 0, 800)])
    assert [len(mine) for mine in found] == [1, 1, 2]
    assert set(found[2]) == {*found[0], *found[1]}


@settings(max_examples=100)
@given(st.lists(st.integers(1, 4), max_size=4), st.integers(1, 24), st.integers(0, 5))
def test_strides_are_those_of_the_columns_of_a_matrix(shape, length, gap):
    size = int(np.prod(shape))
    strides = row_strides(shape, length, length + gap)
    boundaries = [int(np.prod(shape[axis:])) for axis in range(len(shape) + 1)]
    assert (strides is not None) == (length in boundaries)
    if strides is not None:
        matrix = np.arange(size // length * (length + gap)).reshape(-1, length + gap)
        columns = matrix[:, :length].reshape(shape)
        places = np.zeros(shape, int)
        for index in np.ndindex(*shape):
            places[index] = sum(i * s for i, s in zip(index, strides, strict=True))
        np.testing.assert_array_equal(places, columns)
