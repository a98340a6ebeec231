"""Tiles fill vEUs up to a level, and what is left ends as soon as it can."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule import fill_veus as module
from tvm_rammer.schedule.fill_veus import Share, fill_veus

STARTS = st.lists(st.integers(0, 40).map(float), min_size=1, max_size=8)


def test_its_example():
    assert doctest.testmod(module).failed == 0


@given(STARTS, st.integers(0, 60), st.integers(1, 9), st.integers(0, 60))
def test_all_tiles_are_given_and_no_other_way_to_end_by_the_level_ends_sooner(
    starts, tiles, time, level
):
    shares = fill_veus(starts, tiles, float(time), float(level))
    assert sum(share.tiles for share in shares) == tiles
    assert [share.veu for share in shares] == sorted({share.veu for share in shares})
    end = max((starts[veu] + count * time for veu, count in shares), default=0.0)

    def room(until):
        return sum(max(0, int((until - start) / time)) for start in starts)

    # Whole tiles up to the level, or as many as all vEUs have time for before the last one ends.
    assert end <= level or room(end - time) < tiles


@pytest.mark.parametrize(
    ("excess", "shares"), [(0.5, [Share(0, 3), Share(1, 1)]), (1.0, [Share(0, 4)])]
)
def test_an_excess_is_no_reason_to_split(excess, shares):
    assert fill_veus([0.0, 0.0], 4, 1.0, 3.0, excess) == shares
