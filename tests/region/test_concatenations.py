"""Operators write the operands of a concatenation where it will be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts_of_results import assert_runs, module, names, parts
from small_graphs import TARGET
from tvm import relax

import tvm_rammer
from tvm_rammer.schedule import POLICIES

OP = relax.op


def width(tensor: Any) -> int:
    return int(tensor.ty.shape[1])


def test_results_are_written_side_by_side():
    def build(emit, x, y):
        return emit(OP.tanh(emit(OP.concat([emit(OP.exp(x)), emit(OP.nn.relu(y))], axis=2))))

    graph = assert_runs(module(build, (2, 3, 16), (2, 3, 24)))
    assert names(graph) == ["exp", "relu", "tanh"]
    assert parts(graph) == {"lv": ("lv2", 0, 160), "lv1": ("lv2", 64, 160)}
    assert graph.predecessors == ((), (), (0, 1))


def test_along_the_first_axis_a_part_is_compact():
    def build(emit, x, y):
        return emit(OP.concat([emit(OP.exp(x)), emit(OP.nn.relu(y))], axis=0))

    graph = assert_runs(module(build, (3, 5), (1, 5)))
    assert names(graph) == ["exp", "relu"]
    assert parts(graph) == {"lv": ("gv", 0, 80), "lv1": ("gv", 60, 80)}


def test_inputs_constants_and_a_result_met_again_are_copied():
    constant = relax.const(np.arange(32, dtype="float32").reshape(2, 16))

    def build(emit, x):
        y = emit(OP.exp(x))
        return emit(OP.concat([y, x, constant, y], axis=1))

    graph = assert_runs(module(build, (2, 16)))
    assert names(graph) == ["exp", *(f"concatenate_copy{n}" for n in ("", "#1", "#2"))]
    assert parts(graph) == {
        "lv": ("gv", 0, 256),
        "gv.1": ("gv", 64, 256),
        "gv.2": ("gv", 128, 256),
        "gv.3": ("gv", 192, 256),
    }


def test_without_any_result_among_its_operands_it_stays():
    graph = assert_runs(
        module(lambda emit, x, y: emit(OP.exp(emit(OP.concat([x, y], 1)))), (2, 16), (2, 16))
    )
    assert names(graph) == ["concatenate", "exp"]
    assert not parts(graph)


def test_rows_shorter_than_a_cache_line_are_left_to_fusion():
    def build(emit, x, y):
        return emit(OP.exp(emit(OP.concat([emit(OP.tanh(x)), emit(OP.exp(y))], axis=1))))

    mod = module(build, (4, 15), (4, 8))
    with TARGET:
        (name,) = [
            symbol.name_hint
            for symbol, func in tvm_rammer.transform.prepare.Prepare()(mod).functions_items()
            if symbol.name_hint != "main"
        ]
    assert "concatenate" in name


def test_one_that_is_an_operand_of_the_next():
    """DenseNet: everything lies in the last result, and the others are parts of it."""

    def build(emit, x):
        features = emit(OP.exp(x))
        for _ in range(3):
            weight = relax.const(np.eye(width(features), 16, dtype="float32"))
            features = emit(OP.concat([features, emit(OP.matmul(features, weight))], axis=1))
        return emit(OP.tanh(features))

    graph = assert_runs(module(build, (6, 16)))
    assert not [name for name in names(graph) if "concat" in name]
    found = parts(graph)
    assert len(found) == 6
    assert {(whole, pitch) for whole, _, pitch in found.values()} == {("lv6", 256)}
    assert sorted(offset for _, offset, _ in found.values()) == [0, 0, 0, 64, 128, 192]


def test_one_whose_operands_lie_side_by_side_already():
    """DenseNet as other frameworks write it: every layer concatenates all results before."""

    def build(emit, x):
        results = [emit(OP.exp(x))]
        for columns in (16, 32, 16):
            weight = np.ones((sum(map(width, results)), columns)) / 50
            joined = results[0] if len(results) == 1 else emit(OP.concat(list(results), axis=1))
            results.append(emit(OP.matmul(joined, relax.const(weight.astype("float32")))))
        return emit(OP.concat(results, axis=1))

    graph = assert_runs(module(build, (5, 16)))
    assert names(graph) == ["exp", "matmul", "matmul1", "matmul2"]
    assert set(parts(graph).values()) == {("gv", offset, 320) for offset in (0, 64, 128, 256)}


def test_what_an_output_is_stays_an_output():
    """It is copied; the result of a concatenation may be one itself, read by others too."""

    def build(emit, x):
        y, z = emit(OP.exp(x)), emit(OP.nn.relu(x))
        joined = emit(OP.concat([y, z], axis=1))
        return [y, joined, emit(OP.tanh(joined)), emit(OP.nn.relu(z))]

    graph = assert_runs(module(build, (3, 16)))
    assert names(graph) == ["exp", "relu", "concatenate_copy", "tanh", "relu#1"]
    assert parts(graph) == {"lv1": ("gv1", 64, 128), "gv1.0": ("gv1", 0, 128)}


@pytest.mark.parametrize(("shape", "moves"), [((6, 2, 8), True), ((3, 32), False)])
def test_a_view_of_a_part_keeps_its_rows(shape, moves):
    def build(emit, x, y):
        z = emit(OP.exp(x))
        weight = relax.const(np.ones((shape[-1], 16), "float32"))
        return [
            emit(OP.concat([z, emit(OP.tanh(y))], axis=1)),
            emit(OP.matmul(emit(OP.reshape(z, shape)), weight)),
        ]

    graph = assert_runs(module(build, (6, 16), (6, 16)))
    assert ("lv" in parts(graph)) == moves
    assert ("concatenate_copy" in names(graph)) != moves


def test_rows_of_another_number_are_concatenated_first():
    """What is concatenated along another axis before is copied into the rows of the whole."""

    def build(emit, x, y):
        inner = emit(OP.concat([emit(OP.exp(x)), emit(OP.tanh(x))], axis=0))
        return emit(OP.nn.relu(emit(OP.concat([inner, emit(OP.exp(y))], axis=1))))

    graph = assert_runs(module(build, (2, 16), (4, 16)))
    assert names(graph) == ["exp", "tanh", "concatenate", "exp1", "relu"]
    assert set(parts(graph).values()) == {("lv4", 0, 128), ("lv4", 64, 128)}


def test_a_tensor_without_elements_takes_no_part():
    nothing = relax.const(np.zeros((3, 0), "float32"))

    def build(emit, x):
        joined = emit(OP.concat([nothing, emit(OP.exp(x)), emit(OP.nn.relu(x))], axis=1))
        return emit(OP.tanh(joined))

    graph = assert_runs(module(build, (3, 16)))
    assert parts(graph) == {"lv": ("lv2", 0, 128), "lv1": ("lv2", 64, 128)}


@pytest.mark.parametrize("cut", [2, 4])
def test_only_some_rows_of_a_result(cut):
    """Slices of the first rows are views of a buffer that is larger than what is concatenated."""

    def build(emit, x):
        y = emit(OP.exp(x))
        last = emit(OP.strided_slice(y, axes=[0], begin=[cut], end=[6]))
        first = emit(OP.strided_slice(y, axes=[0], begin=[0], end=[cut]))
        return emit(OP.tanh(emit(OP.concat([last, first], axis=0))))

    graph = assert_runs(module(build, (6, 16)))
    assert "lv" not in parts(graph)


def image_branches(emit: Any, x: Any, y: Any) -> Any:
    """Two convolutions and a pooling, concatenated along the channels; once more behind it."""
    rng = np.random.default_rng(0)

    def convolution(source: Any, channels: int, size: int) -> Any:
        shape = (channels, int(source.ty.shape[1]), size, size)
        weight = relax.const(rng.standard_normal(shape).astype("float32") / 8)
        return emit(OP.nn.relu(emit(OP.nn.conv2d(source, weight, padding=size // 2))))

    pooled = emit(OP.nn.max_pool2d(x, (3, 3), padding=1))
    first = emit(OP.concat([convolution(x, 16, 1), convolution(x, 19, 3), pooled], axis=1))
    second = emit(OP.concat([convolution(first, 16, 3), first, y], axis=1))
    return [convolution(second, 8, 1), emit(OP.tanh(second))]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_channels_of_images(policy):
    """A ragged number of channels, a concatenation in another one, an input among the operands."""
    graph = assert_runs(module(image_branches, (1, 16, 7, 9), (1, 17, 7, 9)), policy)
    assert sum("concatenate" in name for name in names(graph)) <= 2
    assert len(parts(graph)) == 6


@st.composite
def concatenations(draw: st.DrawFn) -> Any:
    """Some operands, each a result, an input or a result that another operator reads too."""
    rank = draw(st.integers(1, 4))
    axis = draw(st.integers(0, rank - 1))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    widths = draw(st.lists(st.sampled_from([1, 3, 16, 20, 33]), min_size=2, max_size=4))
    shapes = [(*shape[:axis], width, *shape[axis + 1 :]) for width in widths]
    kinds = [draw(st.sampled_from(["result", "result", "input", "shared"])) for _ in widths]
    again = draw(st.booleans())

    def build(emit, *inputs):
        operands, others = [], []
        for kind, x in zip(kinds, inputs, strict=True):
            result = x if kind == "input" else emit(OP.nn.relu(x))
            operands.append(result)
            if kind == "shared":
                others.append(emit(OP.tanh(result)))
        joined = emit(OP.concat(operands, axis=axis))
        if again:
            joined = emit(OP.concat([emit(OP.exp(inputs[0])), joined], axis=axis))
        return [*others, joined, emit(OP.tanh(joined))]

    return module(build, *shapes)


@settings(max_examples=8)
@given(concatenations(), st.sampled_from(["sequential", "wavefront", "random3"]))
def test_any_concatenation(mod, policy):
    assert_runs(mod, policy)
