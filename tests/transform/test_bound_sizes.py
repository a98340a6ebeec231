"""What has a size that is found out at run time comes after who finds it out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.transform.bound_sizes import in_order


def ramp() -> onnx.ModelProto:
    """As many numbers as the input says, times a number that is computed of it."""
    nodes = [
        helper.make_node("Cast", ["n"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["tau", "number"], ["step"]),
        helper.make_node("Range", ["zero", "number", "one"], ["places"]),
        helper.make_node("Mul", ["places", "step"], ["angles"]),
        helper.make_node("Cos", ["angles"], ["y"]),
    ]
    numbers = {"tau": 2 * np.pi, "zero": 0, "one": 1}
    graph = helper.make_graph(
        nodes,
        "ramp",
        [helper.make_tensor_value_info("n", TensorProto.INT32, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
        [helper.make_tensor(name, TensorProto.FLOAT, [], [v]) for name, v in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("count", [1, 7])
def test_a_range_that_is_fused_with_what_was_before(count):
    library = tvm_rammer.build(ramp(), policy="sequential", num_veus=2)
    (found,) = library.create()(np.int32(count))
    wanted = np.cos(np.arange(count) * 2 * np.pi / count)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)


@I.ir_module
class Late:
    @R.function
    def main(x: R.Tensor((4,), "float32"), length: R.Tensor((1,), "int64")):
        n = T.int64()
        with R.dataflow():
            shape = R.tensor_to_shape(length)
            _: R.Shape([n]) = R.match_cast(shape, R.Shape([n]))
            ones = R.ones(R.shape([n]), "float32")
            other = R.tanh(x)
            R.output(ones, other)
        return (ones, other)


def names(module: tvm.IRModule) -> list[str]:
    (block,) = module["main"].body.blocks
    return [binding.var.name for binding in block.bindings]


def test_nothing_moves_that_is_in_order():
    assert in_order(Late).same_as(Late)
    func = Late["main"]
    (block,) = func.body.blocks
    shape, cast, ones, other = block.bindings
    for order in ([ones, other, shape, cast], [other, cast, ones, shape]):
        mixed = relax.SeqExpr([relax.DataflowBlock(order)], func.body.body)
        module = tvm.IRModule({"main": relax.Function(func.params, mixed, func.ret_ty)})
        found = names(in_order(module))
        assert found.index("shape") < found.index("_") < found.index("ones")
        assert sorted(found) == sorted(names(Late))
