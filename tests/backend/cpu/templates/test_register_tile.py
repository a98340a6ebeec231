"""Register tiles fit the registers, and their last vectors have columns of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_runs import VDEVICES

from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.templates.register_tile import (
    STACK_LIMIT,
    RegisterTile,
    cycles_of_step,
    lanes_for,
    overlapping_lanes,
    register_tile,
)
from tvm_rammer.backend.cpu.templates.winograd.products import register_tiles

_, MIDDLE, NARROW, _ = VDEVICES
#: The vectors of 64 bytes of the first take one turn, those of the second two.
WIDE, HALVED = (
    vdevice_for({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu})
    for cpu in ("znver5", "znver4")
)


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


@pytest.mark.parametrize(
    ("columns", "vdevice", "lanes"),
    [
        (32, WIDE, 16),
        (24, WIDE, 16),
        (24, HALVED, 8),
        (40, WIDE, 16),
        (40, HALVED, 8),
        (20, WIDE, 16),
        (20, HALVED, 8),
        (28, HALVED, 16),
        (12, WIDE, 8),
        (12, MIDDLE, 8),
        (20, MIDDLE, 8),
        (5, MIDDLE, 4),
        (3, MIDDLE, None),
        (0, NARROW, None),
    ],
)
def test_overlapping_lanes(columns, vdevice, lanes):
    """The fewest cycles, where narrow vectors of some wide processors take half of one."""
    assert overlapping_lanes(columns, vdevice) == lanes


@given(
    st.integers(1, 300),
    st.integers(1, 600),
    st.sampled_from(VDEVICES),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([0, 3]),
)
def test_tiles_fit(rows, columns, vdevice, itemsize, taps):
    tile = register_tile(rows, columns, vdevice, itemsize, taps)
    width = tile.vectors * tile.lanes
    assert 1 <= tile.rows <= rows
    assert tile.vectors > 1 or columns % tile.lanes == 0
    assert tile.rows * tile.vectors + tile.vectors < vdevice.vector_registers
    assert tile.rows * width * itemsize < STACK_LIMIT


@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        (56, 64, "7 x 2 vectors of 16"),
        (27, 256, "7 x 2 vectors of 16"),
        (13, 112, "13 x 1 vectors of 16"),
        (24, 48, "4 x 3 vectors of 16"),
        (28, 17, "7 x 2 vectors of 16"),
        (1, 1000, "1 x 4 vectors of 16"),
        (9, 1, "9 x 1 vectors of 1"),
    ],
)
def test_tiles_of_wide_vectors(rows, columns, tile):
    """Tiles of which few rows and columns are computed for nothing."""
    assert str(register_tile(rows, columns, WIDE)) == tile


def test_no_outputs():
    assert register_tile(0, 16, WIDE) is None
    assert register_tile(16, 0, WIDE) is None


def test_sums_are_not_spilled_where_registers_are_few():
    """LLVM takes two steps at once of a tile with a single vector."""
    assert register_tile(56, 8, MIDDLE).rows == 10
    assert max(tile.rows for tile in register_tiles(56, 8, MIDDLE)) == 6
    assert max(tile.rows for tile in register_tiles(56, 16, WIDE)) == 14


def test_weights_that_are_used_once_take_their_bytes():
    """However many vectors a tile of a single row has, once chains hide the latency of its sums."""

    def cycles_of_a_vector(vectors: int) -> float:
        return cycles_of_step(RegisterTile(1, vectors, 16, 2), 1, WIDE, once=True) / vectors

    assert cycles_of_a_vector(2) < 1.1 * cycles_of_a_vector(4)
    assert cycles_of_a_vector(1) < 1.2 * cycles_of_a_vector(4)
