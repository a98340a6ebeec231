"""Vectors cover all columns, and no two tiles compute the same one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_runs import legalized_func, numbers, run_prim_func
from tvm import relax, te, tirx, topi
from tvm.sym import Analyzer

from tvm_rammer.backend.cpu.templates.columns import Layout, PackColumns, find_columns
from tvm_rammer.kernel.contraction import find_contraction

OP = relax.op


@st.composite
def layouts(draw):
    group, groups = draw(st.integers(1, 300)), draw(st.integers(1, 4))
    lanes, vectors = draw(st.sampled_from([1, 2, 4, 8, 16])), draw(st.integers(1, 4))
    assume(lanes <= group and (vectors - 1) * lanes < group)
    assume(vectors > 1 or group % lanes == 0)
    return Layout(group * groups, group, vectors, lanes)


@given(layouts())
def test_tiles_share_no_column(layout):
    tiles = [
        {
            layout.first(tile * layout.vectors + vector) + lane
            for vector in range(layout.vectors)
            for lane in range(layout.lanes)
        }
        for tile in range(layout.tiles)
    ]
    assert set().union(*tiles) == set(range(layout.group))
    assert sum(map(len, tiles)) == layout.group


@given(layouts())
def test_first_columns_of_expressions(layout):
    """What packs a constant and what runs agree on where a vector begins."""
    for number in {0, layout.tiles * layout.vectors // 2, layout.tiles * layout.vectors - 1}:
        expression = layout.first(tirx.const(number, "int64"))
        assert int(Analyzer().simplify(expression)) == layout.first(number)


@given(layouts(), st.permutations([0, 1, 2]))
def test_packed_weights(layout, order):
    """``[outer, column, reduced]`` in any order becomes ``[outer, vector, reduced, lane]``."""
    shape = (2, layout.columns, 3)
    plain = np.arange(np.prod(shape)).reshape(shape)
    array = plain.transpose(np.argsort(order))
    packing = PackColumns(tuple(order), 1, layout)
    packed = packing(array)
    assert packed.shape == packing.shape(array.shape)
    assert packed.flags["C_CONTIGUOUS"]
    per_group = layout.tiles * layout.vectors
    for vector in {0, layout.total // 2, layout.total - 1}:
        first = vector // per_group * layout.group + layout.first(vector % per_group)
        for lane in {0, layout.lanes - 1}:
            np.testing.assert_array_equal(packed[:, vector, :, lane], plain[:, first + lane])


@given(layouts(), st.permutations([0, 1, 2]))
def test_packed_pairs(layout, order):
    """Neighbours of the reduced axis lie side by side in a lane."""
    plain = np.arange(2 * layout.columns * 6).reshape(2, layout.columns, 6)
    array = plain.transpose(np.argsort(order))
    packed = PackColumns(tuple(order), 1, layout, 2)(array)
    alone = PackColumns(tuple(order), 1, layout)(array)
    assert packed.shape == (2, layout.total, 3, 2 * layout.lanes)
    for k in (0, 1):
        np.testing.assert_array_equal(packed[..., k::2], alone[:, :, k::2])


@settings(max_examples=10)
@given(layouts(), st.permutations([0, 1, 2]), st.sampled_from((1, 2)))
def test_packing_as_a_computation(layout, order, together):
    """Weights that are not known yet are packed as constants are."""
    shape = [(2, layout.columns, 4)[k] for k in np.argsort(order)]
    plain = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    packing = PackColumns(tuple(order), 1, layout, together)
    source = te.placeholder(plain.shape, "float32")
    func = te.create_prim_func([source, packing.tensor(source)])
    (got,) = run_prim_func(func, [plain]).outputs
    np.testing.assert_array_equal(got, packing(plain))


@pytest.mark.parametrize(
    ("constants", "weight", "axis"),
    [((), 1, 1), ((0,), 1, 1), ((1,), 1, 1), ((0, 1), 1, 1)],
)
def test_columns_of_a_product(constants, weight, axis):
    """Columns of the result whose weights are neighbours in memory come first."""
    contraction = find_contraction(legalized_func(OP.matmul, numbers((5, 7)), numbers((7, 9))))
    columns = find_columns(contraction, frozenset(constants))
    assert columns.weight == weight
    assert columns.axis is contraction.spatial[axis]
    assert (columns.group, columns.elementwise) == (9, False)


def test_columns_of_transposed_factors():
    """``x.T @ w.T``: without constants, those along which a factor is contiguous."""
    a, b = te.placeholder((7, 5), name="a"), te.placeholder((9, 7), name="b")
    func = te.create_prim_func([a, b, topi.nn.matmul(a, b, transpose_a=True, transpose_b=True)])
    contraction = find_contraction(func)
    assert find_columns(contraction, frozenset([1])).weight == 1
    columns = find_columns(contraction, frozenset())
    assert (columns.weight, columns.axis) == (0, contraction.spatial[0])
