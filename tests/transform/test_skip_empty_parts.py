"""Concatenations and splits without the parts that have no elements."""

from __future__ import annotations

import numpy as np
import pytest
from small_graphs import calls
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer
from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.skip_empty_parts import SkipEmptyParts


@I.ir_module
class Joined:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 0), "float32")):
        with R.dataflow():
            one = R.concat((x, y), axis=1)
            two = R.concat((y, x, y, one), axis=-1)
            none = R.concat((y, y), axis=1)
            result = (R.tanh(one), two, none)
            R.output(result)
        return result


@I.ir_module
class Parted:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            whole = R.split(x, [6], axis=1)
            some = R.split(x, [0, 2, 2], axis=-1)
            result = (
                R.tanh(whole[0]), whole[1], some[0], some[1], R.tanh(some[2]), some[3]
            )  # fmt: skip
            R.output(result)
        return result


def operators(module: object) -> list[str]:
    return [operator_name(call).removeprefix("relax.") for call in calls(module["main"])]


def test_a_concatenation_has_operands_with_elements():
    after = SkipEmptyParts()(Joined)
    assert operators(after) == ["concat", "concat", "tanh"]
    assert SkipEmptyParts()(after).same_as(after)
    x, y = np.arange(6, dtype="float32").reshape(2, 3), np.zeros((2, 0), "float32")
    one, two, none = (each.numpy() for each in tvm_rammer.build(Joined).create()(x, y))
    np.testing.assert_allclose(one, np.tanh(x), rtol=1e-6)
    np.testing.assert_array_equal(two, np.concatenate([x, x], 1))
    assert none.shape == (2, 0)


def test_parts_of_a_split_are_slices_or_all_of_it():
    x = np.arange(12, dtype="float32").reshape(2, 6)
    parts = [each.numpy() for each in tvm_rammer.build(Parted).create()(x)]
    wanted = [np.tanh(x), x[:, 6:], x[:, :0], x[:, :2], np.tanh(x[:, 2:2]), x[:, 2:]]
    for part, each in zip(parts, wanted, strict=True):
        assert part.shape == each.shape
        np.testing.assert_allclose(part, each, rtol=1e-6)
    assert "split" not in operators(relax.transform.DeadCodeElimination()(SkipEmptyParts()(Parted)))


@pytest.mark.parametrize("module", [Joined, Parted])
def test_nothing_else_is_changed(module):
    after = relax.transform.DeadCodeElimination()(SkipEmptyParts()(module))
    assert SkipEmptyParts()(after).same_as(after)
