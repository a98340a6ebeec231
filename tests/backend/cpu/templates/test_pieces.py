"""The last axis of element-wise operators in pieces, and whole vectors at its ends."""

from __future__ import annotations

import numpy as np
import tvm_ffi
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, VDEVICES, legalized_func, numbers, run_relax
from tvm import relax, tirx
from tvm.ir import Call

from tvm_rammer.backend.cpu.templates.pieces import Piece, cut_into_pieces
from tvm_rammer.backend.cpu.templates.pooling_rule import Pooling
from tvm_rammer.kernel.blocks import is_choice
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.pointwise import Pointwise

OP = relax.op
LANES = HOST.vector_bytes // 4


def window_sum(rows, columns):
    """The sum of every element of a row and its two neighbours on each side."""
    source, target = (
        tirx.decl_buffer((tirx.IntImm("int64", rows * columns),), "float32") for _ in range(2)
    )
    row, column = (tirx.Var(name, "int64") for name in ("row", "column"))
    index = row * columns + column
    total = tirx.const(0.0, "float32")
    for shift in (-2, -1, 0, 1, 2):
        inside = tirx.all(column + shift >= 0, column + shift < columns)
        total += tirx.if_then_else(inside, tirx.BufferLoad(source, [index + shift]), 0.0)
    return Pointwise((Axis(row, rows), Axis(column, columns)), target, index, total)


def ranges(pieces):
    return sorted((piece.start, piece.length, piece.lanes) for piece in pieces)


def test_short_pieces_at_both_ends_become_vectors():
    """All vectors are whole in every row but the first one and the last."""
    columns = 4 * LANES
    pieces = cut_into_pieces(window_sum(9, columns), HOST)
    assert [(piece.start, piece.length) for piece in pieces.exact] == [
        *((0, 1), (1, 1), (2, columns - 4)),
        *((columns - 2, 1), (columns - 1, 1)),
    ]
    assert ranges(pieces.whole) == [
        (0, LANES, LANES),
        (LANES, 2 * LANES, LANES),
        (3 * LANES, LANES, LANES),
    ]
    assert pieces.inside


def test_of_a_single_row_only_short_pieces_are_inside():
    assert not cut_into_pieces(window_sum(1, 4 * LANES), HOST).whole


def test_pieces_that_are_vectors_stay_what_they_are():
    """Two halves of a concatenation are a copy each."""
    ends = [tirx.decl_buffer((tirx.IntImm("int64", 7 * 64),), "float32") for _ in range(3)]
    row, column = (tirx.Var(name, "int64") for name in ("row", "column"))
    first = tirx.BufferLoad(ends[0], [row * 64 + column])
    second = tirx.BufferLoad(ends[1], [row * 64 + column - 64])
    value = tirx.if_then_else(column < 64, first, second)
    axes = (Axis(row, 7), Axis(column, 128))
    pieces = cut_into_pieces(Pointwise(axes, ends[2], row * 128 + column, value), HOST)
    assert ranges(pieces.exact) == [(0, 64, LANES), (64, 64, LANES)]
    assert pieces.whole == ()
    assert isinstance(pieces.exact[0], Piece)


@settings(max_examples=12)
@given(
    rows=st.integers(1, 5),
    columns=st.sampled_from([5, 16, 17, 20, 32, 40, 64, 100]),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
    vdevice=st.sampled_from(VDEVICES),
)
def test_sums_of_padded_rows(rows, columns, before, after, vdevice):
    """Nothing outside of a buffer is read, and nothing that a selection leaves out is used."""
    x, y = numbers((rows, columns)).copy(), numbers((rows, columns + before + after), seed=1)
    x[:, 0] = np.inf

    def build(x, y):
        return OP.add(OP.nn.pad(x, [0, 0, before, after]), y)

    (out,), origins = run_relax(build, x, y, vdevice=vdevice)
    want = np.pad(x, [(0, 0), (before, after)]) + y
    np.testing.assert_array_equal(out[:, before], np.inf)
    assert_close(np.delete(out, before, 1), np.delete(want, before, 1))
    assert origins == ["elementwise"]


def test_padded_maxima_have_no_branches():
    """A window that reaches over the border reads the nearest element inside."""
    func = legalized_func(
        lambda x: OP.nn.max_pool2d(x, 3, 1, 1, layout="NHWC"), numbers((1, 9, 9, 32))
    )
    made = Pooling().apply(func, frozenset(), HOST)
    assert made is not None
    calls = []
    tvm_ffi.structural_walk(made.func.body, (Call, calls.append))
    assert not any(map(is_choice, calls))
