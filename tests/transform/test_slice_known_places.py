"""Places one after another that are taken are a slice."""

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

from tvm_rammer.transform.slice_known_places import SliceKnownPlaces


def assert_becomes(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = SliceKnownPlaces()(before)
    tvm.ir.assert_structural_equal(after, expected)
    tvm.ir.assert_structural_equal(SliceKnownPlaces()(after), after)


def module(build: Callable[..., Any]) -> tvm.IRModule:
    x = relax.Var("x", R.Tensor((4, 5), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(build(builder.emit, x))
        builder.emit_func_output(y)
    return builder.get()


def taken(places: Any, axis: int, mode: str) -> Any:
    """A module that takes known places."""
    return module(lambda emit, x: relax.op.take(x, relax.const(places), axis, mode))


@pytest.mark.parametrize(
    ("places", "axis", "mode", "start", "stop", "shape"),
    [
        (2, 0, "fast", 2, 3, (5,)),
        ([1, 2, 3], 1, "fast", 1, 4, (4, 3)),
        ([[3], [4]], -1, "fast", 3, 5, (4, 2, 1)),
        (-1, 1, "wrap", 4, 5, (4,)),
        (9, 0, "clip", 3, 4, (5,)),
    ],
)
def test_places_one_after_another_are_a_slice(places, axis, mode, start, stop, shape):
    def build(emit, x):
        return relax.op.reshape(emit(relax.op.strided_slice(x, [axis % 2], [start], [stop])), shape)

    assert_becomes(taken(places, axis, mode), module(build))


@pytest.mark.parametrize(
    ("places", "axis", "mode"),
    [
        ([0, 2], 0, "fast"),
        ([2, 1], 0, "fast"),
        (5, 1, "fast"),  # out of range
        (-1, 0, "fast"),
        ([4, 5], 1, "wrap"),
    ],
)
def test_other_places_are_taken(places, axis, mode):
    mod = taken(places, axis, mode)
    assert_becomes(mod, mod)
