"""Footprints: which cells of its buffers a range of tiles touches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.script import tirx as T

from tvm_rammer.backend.cpu.templates.prefetch import prefetch
from tvm_rammer.kernel.footprint import Matrix, footprints
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.rprogram.program import CELLS, TILE_RANGES, RKernel, cell_rows

ALL = (1 << CELLS) - 1
FIRST_HALF = (1 << CELLS // 2) - 1
#: Of a matrix of 16 rows.
DOWN, ACROSS = 16, CELLS // 16


@T.prim_func(s_tir=True)
def shifted(x: T.Buffer((16, 64), "float32"), out: T.Buffer((16, 64), "float32")):
    for i in T.parallel(16):
        for j in range(64):
            with T.sblock("shift"):
                vi, vj = T.axis.remap("SS", [i, j])
                out[vi, vj] = x[T.max(vi - 2, 0), vj]


@T.prim_func(s_tir=True)
def by_columns(x: T.Buffer((16, 64), "float32"), out: T.Buffer((16, 64), "float32")):
    for j in T.parallel(4):
        for i, k in T.grid(16, 16):
            with T.sblock("copy"):
                vi = T.axis.spatial(16, i)
                vj = T.axis.spatial(64, j * 16 + k)
                out[vi, vj] = x[vi, vj]


@T.prim_func(s_tir=True)
def looked_up(
    x: T.Buffer((16, 64), "float32"),
    at: T.Buffer((16,), "int32"),
    out: T.Buffer((16, 64), "float32"),
):
    for i in T.parallel(16):
        for j in range(64):
            with T.sblock("take"):
                vi, vj = T.axis.remap("SS", [i, j])
                out[vi, vj] = x[at[vi], vj]


@T.prim_func(s_tir=True)
def total(x: T.Buffer((16, 64), "float32"), out: T.Buffer((16,), "float32")):
    for i in T.parallel(16):
        for j in range(64):
            with T.sblock("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    out[vi] = T.float32(0)
                out[vi] = out[vi] + x[vi, vj]


def cells(rows: range, columns: range) -> int:
    """Cells of a matrix of 16 x 64: every row has its own."""
    touched = {row * ACROSS + column * ACROSS // 64 for row in rows for column in columns}
    return sum(1 << cell for cell in touched)


def halves(func: tirx.PrimFunc) -> list[tuple[int, int]]:
    """What the first and the second half of a kernel's tiles touch, by pointer."""
    (stage,) = split_into_stages(func).stages
    kernel = RKernel("body", stage.num_tiles, stage.modes, footprints=stage.footprints)
    middle, end = stage.num_tiles // 2, stage.num_tiles
    by_argument = dict(zip(stage.arguments, range(len(stage.arguments)), strict=True))
    return [
        (kernel.touched(pointer, 0, middle), kernel.touched(pointer, middle, end))
        for _, pointer in sorted(by_argument.items())
    ]


def test_tiles_that_are_rows():
    """The second half reads two rows of the first one."""
    x, out = halves(shifted)
    assert x == (cells(range(6), range(64)), cells(range(6, 14), range(64)))
    assert out == (cells(range(8), range(64)), cells(range(8, 16), range(64)))


def test_tiles_that_are_columns():
    left, right = cells(range(16), range(32)), cells(range(16), range(32, 64))
    assert halves(by_columns) == [(left, right), (left, right)]


def test_an_index_that_depends_on_data_may_be_any():
    x, at, out = halves(looked_up)
    assert x == (cells(range(16), range(64)), cells(range(16), range(64)))
    assert at == (FIRST_HALF, ALL ^ FIRST_HALF)
    assert out == (cells(range(8), range(64)), cells(range(8, 16), range(64)))


def test_what_is_prefetched_for_others_is_not_touched():
    """The next row, which the next tile reads."""
    x, out = (tirx.decl_buffer((16, 64), name=name) for name in ("x", "out"))
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    ahead = prefetch(x[tirx.min(i + 1, 15), j])
    copy = tirx.SeqStmt([ahead, tirx.BufferStore(out, x[i, j], [i, j])])
    row = tirx.For(j, 0, 64, tirx.ForKind.SERIAL, copy)
    nest = tirx.For(i, 0, 16, tirx.ForKind.PARALLEL, row)
    attributes = {"global_symbol": "main", "tirx.noalias": True, "s_tir": True}
    func = tirx.PrimFunc([x, out], nest).with_attrs(attributes)
    assert halves(func)[0] == (cells(range(8), range(64)), cells(range(8, 16), range(64)))


def test_a_vector_is_one_row_of_cells():
    assert halves(total)[1] == (FIRST_HALF, ALL ^ FIRST_HALF)


@settings(max_examples=100)
@given(tiles=st.integers(1, 100), data=st.data())
def test_what_is_not_known(tiles, data):
    """All that is read; of what is written a share, which has one cell in common with the next."""
    kernel = RKernel("body", tiles, ("read", "write"))
    cut = data.draw(st.integers(0, tiles))
    first, second = (kernel.touched(1, 0, cut), kernel.touched(1, cut, tiles))
    assert first | second == ALL
    assert (first & second).bit_count() <= 1
    for start, stop in ((0, cut), (cut, tiles)):
        assert kernel.touched(0, start, stop) == (ALL if start < stop else 0)


@settings(max_examples=100)
@given(tiles=st.integers(1, 100), data=st.data())
def test_a_range_touches_what_its_parts_touch(tiles, data):
    masks = tuple(data.draw(st.integers(0, ALL)) for _ in range(TILE_RANGES))
    kernel = RKernel("body", tiles, ("write",), footprints=(masks,))
    cut = data.draw(st.integers(0, tiles))
    parts = kernel.touched(0, 0, cut) | kernel.touched(0, cut, tiles)
    assert parts == kernel.touched(0, 0, tiles) == np.bitwise_or.reduce(np.array(masks))


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((), 1),
        ((7,), 1),
        ((3, 7), 2),
        ((16, 64), DOWN),
        ((2, 3, 9, 7), 32),
        ((2, 9, 9, 7), 64),
        ((0, 5), 1),
    ],
)
def test_rows_of_cells_of_a_shape(shape, rows):
    assert cell_rows(Matrix.of(shape).rows) == rows


def test_what_is_beyond_64_bits_is_not_known():
    buffer, tile = tirx.decl_buffer((16, 64), "float32"), tirx.Var("i", "int64")
    largest, one = tirx.const(2**63 - 1, "int64"), tirx.const(1, "int64")
    row = tirx.Min(tile, tirx.Add(largest, one))
    store = tirx.BufferStore(buffer, tirx.const(1.0, "float32"), [row, tirx.const(0, "int64")])
    nest = tirx.For(tile, tirx.const(0, "int64"), 16, tirx.ForKind.PARALLEL, store)
    matrix = Matrix.of((16, 64))
    assert footprints(nest, {buffer: 0}, {0: matrix}) == {0: (ALL,) * 16}
