"""Register tiles fit the registers and divide what they tile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_runs import VDEVICES

from tvm_rammer.kernel.register_tile import STACK_LIMIT, lanes_for, register_tile

WIDE, MIDDLE, NARROW = VDEVICES


@pytest.mark.parametrize(
    ("columns", "vdevice", "lanes"),
    [
        (32, WIDE, 16),
        (24, WIDE, 8),
        (20, WIDE, 4),
        (18, WIDE, None),
        (18, MIDDLE, 2),
        (18, NARROW, 2),
        (17, NARROW, None),
        (0, WIDE, None),
    ],
)
def test_lanes(columns, vdevice, lanes):
    """A full, half or quarter vector, and never one of a single lane."""
    assert lanes_for(columns, vdevice) == lanes


@given(st.integers(1, 300), st.integers(1, 600), st.sampled_from(VDEVICES))
def test_tiles_fit(rows, columns, vdevice):
    tile = register_tile(rows, columns, vdevice)
    if tile is None:
        assert lanes_for(columns, vdevice) is None
        return
    assert 1 <= tile.rows <= rows
    assert columns % (tile.vectors * tile.lanes) == 0
    assert tile.rows * tile.vectors + tile.vectors < vdevice.vector_registers
    assert tile.rows * tile.vectors * tile.lanes * 4 < STACK_LIMIT


def test_one_row_takes_several_vectors():
    """A product with one row is bound by the latency of its additions."""
    assert str(register_tile(1, 256, WIDE)) == "1 x 4 vectors of 16"
    assert register_tile(256, 256, WIDE).rows > 1


def test_no_rows():
    assert register_tile(0, 16, WIDE) is None
