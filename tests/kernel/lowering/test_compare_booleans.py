"""Booleans are compared, and computed with, as numpy does; TVM alone ends in an error of LLVM's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax, te, tirx
from tvm.s_tir import Schedule
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline

COUNT = 48
A, B = np.random.default_rng(0).integers(0, 2, (2, COUNT)).astype(bool)
#: TVM's operation, and numpy's.
OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "eq": (tirx.EQ, operator.eq),
    "ne": (tirx.NE, operator.ne),
    "lt": (tirx.LT, operator.lt),
    "le": (tirx.LE, operator.le),
    "gt": (tirx.GT, operator.gt),
    "ge": (tirx.GE, operator.ge),
    "max": (tirx.Max, np.maximum),
    "min": (tirx.Min, np.minimum),
    "add": (tirx.Add, operator.add),
    "mul": (tirx.Mul, operator.mul),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_booleans_are_bits(name, lanes):
    function, expected = OPERATIONS[name]
    inputs = [te.placeholder((COUNT,), "bool", name=n) for n in "ab"]
    output = te.compute((COUNT,), lambda i: function(*(x[i] for x in inputs)), "y")
    sch = Schedule(te.create_prim_func([*inputs, output]))
    if lanes > 1:
        sch.vectorize(sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, lanes])[1])
    func = sch.mod["main"].with_attrs({"global_symbol": "main", "s_tir": True})
    module = tvm.IRModule({"main": func})
    built = tvm.tirx.build(module, resolve_target(None), pipeline=lowering_pipeline())
    got = tvm.runtime.tensor(np.zeros(COUNT, bool))
    built["main"](tvm.runtime.tensor(A), tvm.runtime.tensor(B), got)
    np.testing.assert_array_equal(got.numpy(), expected(A, B))


@pytest.mark.parametrize("name", ["Equal", "And", "Or", "Xor"])
def test_operators_of_onnx(name):
    """Each where nothing can be planned together, and inside of a region."""
    nodes = [
        helper.make_node(name, ["a", "b"], ["compared"]),
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("MatMul", ["x", "v"], ["other"]),
        helper.make_node("Greater", ["product", "x"], ["left"]),
        helper.make_node("Greater", ["other", "x"], ["right"]),
        helper.make_node(name, ["left", "right"], ["both"]),
        helper.make_node("Where", ["both", "product", "other"], ["chosen"]),
    ]
    boolean, real = TensorProto.BOOL, TensorProto.FLOAT
    square = [COUNT, COUNT]
    inputs = [*((n, boolean, [COUNT]) for n in "ab"), *((n, real, square) for n in "xwv")]
    outputs = [("compared", boolean, [COUNT]), ("both", boolean, square), ("chosen", real, square)]
    typed = [
        [helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "booleans", *typed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    # Whole numbers are summed without rounding.
    reals = np.random.default_rng(1).integers(-3, 4, (3, *square)).astype(np.float32)
    values = {"a": A, "b": B, **dict(zip("xwv", reals, strict=True))}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, values)
    executor = tvm_rammer.build(model, policy="sequential").create()
    executor.run(**values)
    for k, want in enumerate(wanted):
        np.testing.assert_array_equal(executor.get_output(k).numpy(), want)


@I.ir_module
class Dynamic:
    @R.function
    def main(a: R.Tensor(("n",), "bool"), b: R.Tensor(("n",), "bool")):
        with R.dataflow():
            result = R.equal(a, b)
            R.output(result)
        return result


def test_of_any_length():
    executable = relax.build(Dynamic, resolve_target(None), relax_pipeline="rammer")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(A), tvm.runtime.tensor(B))
    np.testing.assert_array_equal(got.numpy(), A == B)
