from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.errors import PlanError
from tvm_rammer.schedule.placement import Placed, Placement, split


@given(st.integers(0, 200), st.integers(1, 20))
def test_split_covers_all_tiles_in_nearly_equal_contiguous_ranges(tiles, parts):
    ranges = split(tiles, parts)
    lengths = [stop - start for start, stop in ranges]
    assert [i for start, stop in ranges for i in range(start, stop)] == list(range(tiles))
    assert len(ranges) == parts
    assert max(lengths) - min(lengths) <= 1


def test_a_barrier_placement_goes_forward():
    """Between waves with barriers no vEU may go back."""
    back = ((Placed(0, 0, 0, 1, 1), Placed(1, 0, 0, 1, 0)),)
    assert Placement("test", back).veus == back
    with pytest.raises(PlanError) as error:
        Placement("test", back, barrier=True)
    assert str(error.value) == (
        "vEU 0 goes back to an earlier wave in spite of barriers; "
        "order its ranges by wave or place them without barriers"
    )
