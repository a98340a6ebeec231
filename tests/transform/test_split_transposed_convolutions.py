"""Transposed convolutions become convolutions of their phases; others are left as they are."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.relax_util import calls_of, operator_name, static_shape
from tvm_rammer.transform.split_transposed_convolutions import SplitTransposedConvolutions

OP = relax.op


def module(shape, kernel, **options):
    """A transposed convolution of channels-last data."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    weight = relax.const(np.ones(kernel, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "IOHW"}
            result = builder.emit_output(OP.nn.conv2d_transpose(x, weight, **options, **layouts))
        builder.emit_func_output(result)
    return builder.get()


def split(mod):
    """The PrimFuncs of the calls after the pass, and the shapes of their results."""
    after = SplitTransposedConvolutions()(mod)
    calls = [binding.value for binding in after["main"].body.blocks[0].bindings]
    found = [call for call in calls if operator_name(call) == "relax.call_tir"]
    return [after[call.args[0]] for call in found], [static_shape(call) for call in found]


@pytest.mark.parametrize(
    ("size", "stride", "padding", "taps"),
    [(2, 2, 0, 1), (3, 2, 1, 2), (4, 2, 1, 3), (4, 2, 0, 2), (5, 1, 2, 5), (16, 8, 4, 3)],
)
def test_phases_and_taps_are_axes(size, stride, padding, taps):
    """A phase has every stride-th element of the kernel, one more where the padding shifts it."""
    mod = module((1, 6, 6, 4), (4, 32, size, size), strides=stride, padding=padding)
    (_, convolution), (kernel, result) = split(mod)
    assert kernel == (1, stride, stride, taps, taps, 4, 32)
    assert result == static_shape(mod["main"].body.blocks[0].bindings[0].var)
    assert int(convolution.attrs["op_pattern"]) == 4


def test_phases_of_few_outputs_share_vectors():
    """They are one convolution, with the fewest taps, and what is outside of the result is cut."""
    mod = module((1, 6, 6, 4), (4, 3, 4, 4), strides=2, padding=1)
    _, (kernel, phases, result) = split(mod)
    assert kernel == (1, 2, 2, 4, 12)
    assert phases == (1, 7, 7, 1, 12)
    assert result == (1, 12, 12, 3)


@pytest.mark.parametrize("outputs", [2, 32], ids=["merged", "apart"])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param(("n", 6, 6, 4), {"strides": 2}, id="batch"),
        pytest.param((3, 6, "n", 4), {"strides": (1, 2)}, id="width"),
        pytest.param((3, "n", 6, 4), {"strides": 3, "padding": (1, 0, 2, 1)}, id="height"),
        pytest.param((3, 6, "n", 4), {"strides": 2, "output_padding": 1}, id="more places"),
        pytest.param((3, 6, "n", 4), {"strides": 2, "dilation": 2}, id="dilated"),
    ],
)
def test_one_axis_may_be_of_any_size(shape, options, outputs):
    known = (3, 6, 6, 4)
    x = np.random.default_rng(0).standard_normal(known).astype("float32")
    results = []
    for sizes in (known, [tirx.Var(size, "int64") if size == "n" else size for size in shape]):
        mod = module(sizes, (4, outputs, 3, 3), **options)
        after = SplitTransposedConvolutions()(mod)
        assert {operator_name(call) for call in calls_of(after)} == {"relax.call_tir"}
        machine = relax.VirtualMachine(tvm.compile(after, "llvm"), tvm.cpu())
        results.append(machine["main"](tvm.runtime.tensor(x)).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_unknown_shapes_and_other_layouts_stay():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor(dtype="float32", ndim=4),
            y: R.Tensor((1, 5, 6, 3), "float32"),
            weight: R.Tensor((3, 2, 3, 3), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d_transpose(x, weight)
                b = R.nn.conv2d_transpose(y, weight, data_layout="NHWC", out_layout="NCHW")
                R.output(a, b)
            return (a, b)

    after = SplitTransposedConvolutions()(Module)
    assert after.same_as(Module)
    assert not any(isinstance(func, tirx.PrimFunc) for func in after.functions.values())
