"""Convolutions of few outputs make several pixels at once, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from small_graphs import run
from tvm import relax

from tvm_rammer.relax_util import operator_name, static_shape
from tvm_rammer.transform.widen_convolutions import WidenConvolutions

OP = relax.op


def module(shape, kernel, constant_weights=True, **options):
    """A convolution of channels-last data."""
    rank = len(shape) - 2
    operator, layouts = (
        (OP.nn.conv1d, ("NWC", "OWI")) if rank == 1 else (OP.nn.conv2d, ("NHWC", "OHWI"))
    )
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    weight = relax.Var("w", relax.TensorType(kernel, "float32"))
    numbers = np.random.default_rng(1).standard_normal(kernel).astype("float32")
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant_weights else [x, weight]):
        with builder.dataflow():
            given = relax.const(numbers) if constant_weights else weight
            options = {"data_layout": layouts[0], "kernel_layout": layouts[1], **options}
            result = builder.emit_output(operator(x, given, **options))
        builder.emit_func_output(result)
    return builder.get()


def test_neighbours_become_channels():
    """Eight pixels of one output are eight outputs of a kernel that is as much longer."""
    before = module((1, 5, 16, 4), (1, 3, 3, 4), padding=1)
    after = WidenConvolutions()(before)
    widened, back = (binding.value for binding in after["main"].body.blocks[0].bindings)
    assert static_shape(widened) == (1, 5, 2, 8)
    assert static_shape(widened.args[1]) == (8, 3, 10, 4)
    assert [int(n) for n in widened.attrs.strides] == [1, 8]
    assert [int(n) for n in widened.attrs.padding] == [1, 1, 1, 1]
    assert operator_name(back) == "relax.reshape"
    assert after["main"].ret_ty == before["main"].ret_ty
    kernel, narrow = widened.args[1].value.numpy(), before["main"].body.blocks[0].bindings[0]
    (only,) = narrow.value.args[1].value.numpy()
    for number in range(8):
        np.testing.assert_array_equal(kernel[number, :, number : number + 3], only)
    assert np.count_nonzero(kernel) == 8 * only.size


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((1, 5, 16, 4), (4, 3, 3, 4), {}),
        ((1, 5, 16, 4), (1, 1, 1, 4), {}),
        ((1, 5, 19, 4), (1, 3, 3, 4), {}),
        ((1, 5, 16, 4), (2, 3, 3, 2), {"groups": 2}),
        ((1, 5, 16, 4), (1, 3, 3, 4), {"dilation": 2}),
        ((1, 5, 16, 4), (1, 3, 3, 4), {"constant_weights": False}),
        ((1, 4, 5, 16), (1, 4, 3, 3), {"data_layout": "NCHW", "kernel_layout": "OIHW"}),
    ],
    ids=["outputs enough", "no row", "prime width", "groups", "dilated", "no constant", "layout"],
)
def test_others_stay(shape, kernel, options):
    before = module(shape, kernel, **options)
    assert WidenConvolutions()(before).same_as(before)


@settings(max_examples=25)
@given(
    size=st.lists(st.integers(6, 34), min_size=1, max_size=2),
    kernel=st.lists(st.integers(1, 7), min_size=2, max_size=2),
    strides=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    padding=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    outputs=st.integers(1, 3),
)
@example([16], [1, 7], [1, 1], [0, 3, 0, 3], 1)
@example([6, 30], [3, 4], [1, 2], [1, 2, 0, 4], 3)
def test_results_are_the_same(size, kernel, strides, padding, outputs):
    rank = len(size)
    options = {"strides": strides[-rank:], "padding": [*padding[:rank], *padding[-rank:]]}
    shape, weights = (2, *size, 3), (outputs, *kernel[-rank:], 3)
    assume(all(n >= k for n, k in zip(size, kernel[-rank:], strict=True)))
    before = module(shape, weights, **options)
    after = WidenConvolutions()(before)
    assume(not after.same_as(before))
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    (want,), (got,) = (run(relax.build(mod, "llvm"), [x]) for mod in (before, after))
    assert_close(got, want)
