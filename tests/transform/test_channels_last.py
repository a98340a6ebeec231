from __future__ import annotations

import numpy as np
import pytest
import tvm
from small_graphs import calls
from tvm import relax

import tvm_rammer
from tvm_rammer.transform.channels_last import ChannelsLast
from tvm_rammer.transform.relax_util import operator_name


def module(stacked: bool) -> tvm.IRModule:
    """A convolution, if wanted of a maximum of stacked tensors, which TVM cannot convert."""
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float32"))
    weight = relax.const(np.linspace(-1, 1, 8 * 4 * 9, dtype="float32").reshape(8, 4, 3, 3))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            data = x
            if stacked:
                both = builder.emit(relax.op.stack([x, builder.emit(relax.op.negative(x))]))
                data = builder.emit(relax.op.max(both, axis=[0]))
            y = builder.emit_output(relax.op.nn.conv2d(data, weight))
        builder.emit_func_output(y)
    return builder.get()


def layouts(mod: tvm.IRModule) -> list[str]:
    found = [call for call in calls(mod["main"]) if operator_name(call) == "relax.nn.conv2d"]
    return [call.attrs.data_layout for call in found]


@pytest.mark.parametrize(("stacked", "layout"), [(False, "NHWC"), (True, "NCHW")])
def test_what_tvm_cannot_convert_stays(stacked, layout):
    assert layouts(ChannelsLast()(module(stacked))) == [layout]


def test_a_module_without_convolutions_stays():
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    plain = builder.get()
    assert ChannelsLast()(plain).same_as(plain)


def test_either_way_the_result_is_the_same():
    x = np.abs(np.random.default_rng(0).standard_normal((1, 4, 6, 6))).astype("float32")
    (plain,), (of_stack,) = (
        tvm_rammer.build(module(stacked), policy="sequential").create()(x)
        for stacked in (False, True)
    )
    np.testing.assert_allclose(plain.numpy(), of_stack.numpy(), rtol=1e-4, atol=1e-5)
