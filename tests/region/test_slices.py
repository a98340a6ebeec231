"""Who reads a slice reads it where its source lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts_of_results import assert_runs, module, names, parts
from tvm import relax

from tvm_rammer.backend.cpu.cpu_backend import CpuBackend

OP = relax.op


def weight(rows: int, columns: int) -> relax.Constant:
    values = np.random.default_rng(rows).standard_normal((rows, columns)) / 4
    return relax.const(values.astype("float32"))


def test_rows_of_a_product_are_read_where_they_are():
    def build(emit, x):
        rows = emit(OP.split(emit(OP.matmul(x, weight(16, 32))), 4, axis=0))
        return [emit(OP.matmul(emit(relax.TupleGetItem(rows, k)), weight(32, 8))) for k in range(4)]

    graph = assert_runs(module(build, (4, 16)))
    assert names(graph) == ["matmul", *(f"matmul1{n}" for n in ("", "#1", "#2", "#3"))]
    assert parts(graph) == {f"lv1.{k}": ("lv", 128 * k, 512) for k in range(4)}
    assert graph.predecessors == ((), (0,), (0,), (0,), (0,))


def test_columns_of_every_row():
    def build(emit, x):
        halves = emit(OP.split(emit(OP.matmul(x, weight(16, 64))), 2, axis=1))
        return [
            emit(OP.matmul(emit(relax.TupleGetItem(halves, k)), weight(32, 8))) for k in range(2)
        ]

    graph = assert_runs(module(build, (5, 16)))
    assert names(graph) == ["matmul", "matmul1", "matmul1#1"]
    assert parts(graph) == {"lv1.0": ("lv", 0, 256), "lv1.1": ("lv", 128, 256)}


def test_a_slice_of_an_input_in_another_shape():
    """The step of a sequence, without the axis of steps."""

    def build(emit, x):
        step = emit(OP.strided_slice(x, axes=[1], begin=[3], end=[4]))
        return emit(OP.matmul(emit(OP.squeeze(step, [1])), weight(32, 8)))

    graph = assert_runs(module(build, (1, 6, 32)))
    assert names(graph) == ["matmul"]
    assert list(parts(graph).values()) == [("x0", 384, 768)]


def test_last_rows_of_what_becomes_the_end_of_a_concatenation():
    """A part that moves with its whole keeps its length."""

    def build(emit, x):
        y = emit(OP.matmul(x, weight(64, 64)))
        last = emit(OP.strided_slice(y, axes=[0], begin=[2], end=[4]))
        return [emit(OP.concat([x, y], 0)), emit(OP.matmul(last, weight(64, 8)))]

    graph = assert_runs(module(build, (4, 64)))
    assert set(parts(graph).values()) >= {("gv", 1024, 2048), ("gv", 1536, 2048)}


def test_slices_of_slices():
    def build(emit, x):
        y = emit(OP.matmul(x, weight(16, 96)))
        right = emit(OP.strided_slice(y, axes=[1], begin=[32], end=[96]))
        last = emit(OP.strided_slice(right, axes=[1], begin=[32], end=[64]))
        return [emit(OP.matmul(last, weight(32, 8))), emit(OP.matmul(right, weight(64, 8)))]

    graph = assert_runs(module(build, (3, 16)))
    assert names(graph) == ["matmul", "matmul1", "matmul2"]
    assert set(parts(graph).values()) == {("lv", 128, 384), ("lv", 256, 384)}


@pytest.mark.parametrize(
    ("begin", "end", "stride", "axis"),
    [
        (1, 3, 1, 0),  # some rows of columns: not of every row
        (0, 32, 2, 1),  # every second column
        (31, -33, -1, 1),  # backwards
    ],
)
def test_what_is_no_part_is_copied(begin, end, stride, axis):
    def build(emit, x):
        y = emit(OP.matmul(x, weight(16, 32)))
        if axis == 0:
            y = emit(OP.permute_dims(y, [1, 0]))
            y = emit(OP.reshape(y, (2, 16, 5)))
            some = emit(OP.strided_slice(y, axes=[1], begin=[begin], end=[end]))
            return emit(OP.matmul(some, weight(5, 8)))
        some = emit(OP.strided_slice(y, axes=[axis], begin=[begin], end=[end], strides=[stride]))
        return emit(OP.matmul(some, weight(int(some.ty.shape[1]), 8)))

    graph = assert_runs(module(build, (5, 16)))
    assert not parts(graph)
    assert any("slice" in name for name in names(graph))


@pytest.mark.parametrize(("begin", "moves"), [(2, False), (4, True)])
def test_a_slice_begins_where_vectors_may(begin, moves, monkeypatch):
    def build(emit, x):
        y = emit(OP.matmul(x, weight(16, 32)))
        some = emit(OP.strided_slice(y, axes=[1], begin=[begin], end=[begin + 20]))
        return emit(OP.matmul(some, weight(20, 8)))

    monkeypatch.setattr(CpuBackend, "vector_bytes", 16)
    graph = assert_runs(module(build, (5, 16)))
    assert list(parts(graph).values()) == ([("lv", 4 * begin, 128)] if moves else [])


def test_an_output_is_copied_the_other_slices_are_not():
    def build(emit, x):
        thirds = emit(OP.split(emit(OP.matmul(x, weight(16, 96))), 3, axis=1))
        left, middle, right = (emit(relax.TupleGetItem(thirds, k)) for k in range(3))
        return [middle, emit(OP.matmul(left, weight(32, 8))), emit(OP.matmul(right, weight(32, 8)))]

    graph = assert_runs(module(build, (2, 16)))
    assert sorted(names(graph)) == ["matmul", "matmul1", "matmul1#1", "split"]
    assert set(parts(graph).values()) == {("lv", 0, 384), ("lv", 256, 384)}


def test_an_output_of_slices_of_slices_is_copied():
    """Fusion makes one function of both, which has results between."""

    def build(emit, x):
        halves = emit(OP.split(x, 2, axis=1))
        left = emit(relax.TupleGetItem(halves, 0))
        quarters = emit(OP.split(left, 2, axis=1))
        first, second = (emit(relax.TupleGetItem(quarters, k)) for k in range(2))
        return [first, emit(OP.matmul(second, weight(16, 8)))]

    graph = assert_runs(module(build, (3, 64)))
    assert names(graph) == ["fused_split_split1", "matmul"]
    assert list(parts(graph).values()) == [("x0", 64, 256)]


def test_rows_and_columns_of_one_buffer_do_not_go_together():
    """All parts of a buffer have the same rows: who comes second is copied."""

    def build(emit, x):
        y = emit(OP.matmul(x, weight(16, 64)))
        columns = emit(OP.strided_slice(y, axes=[1], begin=[32], end=[64]))
        row = emit(OP.strided_slice(y, axes=[0], begin=[1], end=[2]))
        return [emit(OP.matmul(columns, weight(32, 8))), emit(OP.matmul(row, weight(64, 8)))]

    graph = assert_runs(module(build, (3, 16)))
    assert list(parts(graph).values()) == [("lv", 128, 256)]
    assert sum("slice" in name for name in names(graph)) == 1


def test_halves_go_with_their_source_into_a_concatenation():
    """YOLO's C2f: both halves of a convolution are joined with what is made of the second."""

    def build(emit, x):
        y = emit(OP.nn.relu(emit(OP.matmul(x, weight(16, 64)))))
        halves = emit(OP.split(y, 2, axis=1))
        left, right = (emit(relax.TupleGetItem(halves, k)) for k in range(2))
        made = emit(OP.matmul(right, weight(32, 32)))
        return emit(OP.matmul(emit(OP.concat([left, right, made], axis=1)), weight(96, 8)))

    graph = assert_runs(module(build, (6, 16)))
    assert names(graph) == ["fused_matmul_relu", "matmul1", "matmul2"]
    assert sorted(offset for _, offset, _ in parts(graph).values()) == [0, 0, 128, 256]
    assert {pitch for _, _, pitch in parts(graph).values()} == {384}


def test_one_half_is_copied_into_a_concatenation_the_other_is_read_in_place():
    """ShuffleNet v2: half of the channels pass by."""

    def build(emit, x):
        halves = emit(OP.split(emit(OP.matmul(x, weight(16, 64))), 2, axis=1))
        left, right = (emit(relax.TupleGetItem(halves, k)) for k in range(2))
        made = emit(OP.matmul(right, weight(32, 32)))
        return emit(OP.matmul(emit(OP.concat([left, made], axis=1)), weight(64, 8)))

    graph = assert_runs(module(build, (6, 16)))
    assert names(graph) == ["matmul", "matmul1", "concatenate_copy", "matmul2"]


def test_what_is_joined_as_it_was_is_its_source():
    def build(emit, x):
        halves = emit(OP.split(emit(OP.matmul(x, weight(16, 64))), 2, axis=1))
        left, right = (emit(relax.TupleGetItem(halves, k)) for k in range(2))
        both = emit(OP.concat([left, right], axis=1))
        return [emit(OP.matmul(both, weight(64, 8))), emit(OP.matmul(right, weight(32, 8)))]

    graph = assert_runs(module(build, (4, 16)))
    assert names(graph) == ["matmul", "matmul1", "matmul2"]


def test_the_first_rows_of_what_was_joined_do_not_take_it_along():
    """Vision transformers keep the token of the class beside what they make of all others."""

    def build(emit, x):
        y = emit(OP.reshape(emit(OP.matmul(x, weight(16, 32))), (1, 9, 32)))
        tokens = emit(OP.expand_dims(y, 1))
        first = emit(OP.strided_slice(tokens, axes=[2], begin=[0], end=[1]))
        rest = emit(OP.strided_slice(tokens, axes=[2], begin=[1], end=[9]))
        pooled = emit(OP.sum(emit(OP.reshape(rest, (1, 1, 4, 2, 32))), axis=3))
        return emit(OP.matmul(emit(OP.concat([first, pooled], axis=2)), weight(32, 8)))

    graph = assert_runs(module(build, (9, 16)))
    assert names(graph) == ["matmul", "sum", "concatenate_copy", "matmul1"]


@st.composite
def slices(draw: st.DrawFn) -> Any:
    """Cuts of a result or an input along some axis, cut again, joined, and read by others."""
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 3)) for _ in range(rank)]
    axis = draw(st.integers(0, rank - 1))
    widths = draw(st.lists(st.sampled_from([1, 3, 16, 32, 48]), min_size=2, max_size=4))
    ends = [sum(widths[: k + 1]) for k in range(len(widths))]
    shape[axis] = ends[-1]
    source = draw(st.sampled_from(["input", "result", "output"]))
    again = draw(st.sampled_from([None, *range(rank)]))
    joined = draw(st.lists(st.integers(0, len(widths) - 1), max_size=4))
    fate = [draw(st.sampled_from(["read", "output", "both"])) for _ in widths]
    first = draw(st.none() | st.integers(1, ends[-1]))
    # What lies in an axis more is a copy that moves nothing.
    more = draw(st.sampled_from([0, 2]))

    def half(emit: Any, part: Any) -> Any:
        extent = int(part.ty.shape[again + more])
        return emit(OP.strided_slice(part, axes=[again + more], begin=[extent // 2], end=[extent]))

    def build(emit: Any, x: Any) -> Any:
        y = x if source == "input" else emit(OP.cumsum(x, axis=axis))
        if more:
            y = emit(OP.expand_dims(emit(OP.reshape(y, (1, *shape))), 1))
        cut = emit(OP.split(y, ends[:-1], axis=axis + more))
        pieces = [emit(relax.TupleGetItem(cut, k)) for k in range(len(widths))]
        # A region returns its results in the order in which they are made.
        results = [y] if source == "output" else []
        results += [piece for piece, what in zip(pieces, fate, strict=True) if what != "read"]
        for piece, what in zip(pieces, fate, strict=True):
            if what != "output":
                read = piece if again is None else half(emit, piece)
                results.append(emit(OP.cumsum(read, axis=rank + more - 1)))
        operands = [pieces[k] for k in joined]
        if first is not None:
            begun = OP.strided_slice(y, axes=[axis + more], begin=[0], end=[first])
            operands.insert(0, emit(begun))
        if operands:
            together = emit(OP.concat(operands, axis=axis + more))
            results.append(emit(OP.cumsum(together, axis=more)))
        return [*results, emit(OP.cumsum(y, axis=rank + more - 1))]

    return module(build, tuple(shape))


@settings(max_examples=12)
@given(slices(), st.sampled_from(["sequential", "wavefront", "random3"]))
def test_any_slices(mod, policy):
    assert_runs(mod, policy)
