"""Weights of convolutions by channel lie place by place, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from small_graphs import run
from tvm import relax

from tvm_rammer.relax_util import static_shape
from tvm_rammer.transform.taps_first import TapsFirst

OP = relax.op
#: Operators and layouts by the number of axes of a window.
CONVOLUTIONS = {
    1: (OP.nn.conv1d, "NWC", "OWI", "WOI"),
    2: (OP.nn.conv2d, "NHWC", "OHWI", "HWOI"),
}


def module(window, channels=6, outputs=6, groups=6, known=True, layouts=None):
    rank = len(window)
    operator, data_layout, kernel_layout, _ = CONVOLUTIONS[rank]
    kernel = (outputs, *window, channels // groups)
    x = relax.Var("x", relax.TensorType((2, *[5] * rank, channels), "float32"))
    weight = relax.Var("w", relax.TensorType(kernel, "float32"))
    numbers = np.random.default_rng(1).standard_normal(kernel).astype("float32")
    data_layout, kernel_layout = layouts or (data_layout, kernel_layout)
    options = {"data_layout": data_layout, "kernel_layout": kernel_layout, "groups": groups}
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if known else [x, weight]):
        with builder.dataflow():
            given = relax.const(numbers) if known else weight
            result = builder.emit_output(operator(x, given, padding=1, **options))
        builder.emit_func_output(result)
    return builder.get()


def call_of(mod):
    (binding,) = mod["main"].body.blocks[0].bindings
    return binding.value


@pytest.mark.parametrize("outputs", [6, 12])
@pytest.mark.parametrize("window", [(3,), (3, 2)])
def test_channels_of_weights_come_last(window, outputs):
    """Also where every channel has two filters."""
    before = module(window, outputs=outputs)
    after = TapsFirst()(before)
    old, new = call_of(before), call_of(after)
    *_, layout = CONVOLUTIONS[len(window)]
    assert str(new.attrs.kernel_layout) == layout
    assert static_shape(new.args[1]) == (*window, outputs, 1)
    moved = np.moveaxis(old.args[1].value.numpy(), 0, -2)
    np.testing.assert_array_equal(new.args[1].value.numpy(), moved)
    assert new.ty == old.ty and new.attrs.padding[:] == old.attrs.padding[:]
    x = np.random.default_rng(2).standard_normal(static_shape(old.args[0])).astype("float32")
    (want,), (got,) = (run(relax.build(mod, "llvm"), [x]) for mod in (before, after))
    assert_close(got, want)
    assert TapsFirst()(after).same_as(after)


@pytest.mark.parametrize(
    "options",
    [
        {"groups": 1},
        {"groups": 3},
        {"known": False},
        {"channels": 1, "outputs": 6, "groups": 1},
    ],
    ids=str,
)
def test_other_convolutions_stay_as_they_are(options):
    before = module((3, 3), **options)
    assert TapsFirst()(before).same_as(before)
