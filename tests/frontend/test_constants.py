"""Inputs that are fixed to a value: they are none any more, and what they decide is computed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx_values import tensor
from tvm import relax

import tvm_rammer
from tvm_rammer.errors import InputError
from tvm_rammer.frontend import load_model
from tvm_rammer.frontend.input_constants import as_constant


def switched() -> onnx.ModelProto:
    """Doubles at 16 kHz and halves at any other rate."""

    def branch(name: str, operator: str) -> onnx.GraphProto:
        two = numpy_helper.from_array(np.float32(2), "two")
        node = helper.make_node(operator, ["x", "two"], [name])
        return helper.make_graph([node], name, [], [tensor(name, None)], [two])

    nodes = [
        helper.make_node("Equal", ["rate", "wide"], ["c"]),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("t", "Mul"), else_branch=branch("e", "Div")
        ),
    ]
    inputs = [tensor("x", ("n",)), tensor("rate", (), TensorProto.INT64)]
    wide = numpy_helper.from_array(np.array(16000), "wide")
    graph = helper.make_graph(nodes, "graph", inputs, [tensor("y", ("n",))], [wide])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def added(shape: object = ("n", 2), dtype: int = TensorProto.INT32) -> onnx.ModelProto:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    inputs = [tensor("a", shape, dtype), tensor("b", shape, dtype)]
    graph = helper.make_graph([node], "graph", inputs, [tensor("y", shape, dtype)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def module_of(dtype: str = "int32") -> tvm.IRModule:
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    a, b = (relax.Var(name, relax.TensorType([n, 2], dtype)) for name in "ab")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(a, b))
        builder.emit_func_output(out)
    return builder.get()


def refusal(*arguments: object) -> str:
    with pytest.raises(InputError) as caught:
        load_model(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("rate", "factor"), [(16000, 2), (np.int64(8000), 0.5), ([16000], 2)])
def test_a_constant_decides_an_if(rate, factor):
    library = tvm_rammer.build(switched(), shapes={"x": (3,)}, constants={"rate": rate})
    assert [info.name for info in library.description.inputs] == ["x"]
    graph_module = library.create()
    graph_module.set_input("x", np.arange(3, dtype="float32"))
    graph_module.run()
    assert graph_module.get_output(0).numpy().tolist() == [0, factor, 2 * factor]


@pytest.mark.parametrize("make", [added, module_of], ids=["ONNX", "Relax"])
def test_the_shape_of_a_constant_settles_symbols(make):
    loaded = load_model(make(), {}, {"b": [[1, 2], [3, 4], [5, 6]]})
    assert loaded.input_names == ("a",)
    (param,) = loaded.module["main"].params
    assert [int(size) for size in param.ty.shape] == [3, 2]
    machine = relax.VirtualMachine(relax.build(loaded.module, "llvm"), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(np.ones((3, 2), "int32")))
    assert result.numpy().tolist() == [[2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("make", [added, module_of], ids=["ONNX", "Relax"])
def test_constants_that_do_not_fit(make):
    model = make()
    assert refusal(model, {}, {"q": 1}) == "the model: there is no input 'q'; its inputs: 'a', 'b'"
    assert refusal(model, {"b": (3, 2)}, {"b": [[1, 2]]}) == (
        "the model: input 'b' is given a shape and a constant; give one of them"
    )
    assert refusal(model, {}, {"b": [1, 2]}) == (
        "the model: input 'b' is (n, 2) in the model; the constant's shape (2) does not fit"
    )
    assert refusal(model, {}, {"b": [[1, 2.5]]}) == (
        "the model: the constant 'b' has values that are no int32, as the input is; "
        "give values that are"
    )
    assert refusal(model, {}, {"b": "16000"}).startswith(
        "the model: the constant 'b' is <U5, not numbers; input 'b' takes int32"
    )
    assert refusal(model, {}, [("b", 1)]) == (
        "constants is [('b', 1)]; give a mapping of names to values"
    )


def test_a_constant_that_contradicts_a_shape():
    assert refusal(added(), {"a": (4, 2)}, {"b": [[1, 2]]}) == (
        "the model: the shapes make the dimension 'n' both 4 and 1; give it one size"
    )
    assert refusal(module_of(), {"a": (4, 2)}, {"b": [[1, 2]]}) == (
        "the model: input 'b' is (4, 2) in the model; the constant's shape (1, 2) does not fit"
    )


@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        (TensorProto.FLOAT, 0.1, True),
        (TensorProto.FLOAT, 1e60, False),
        (TensorProto.FLOAT, float("inf"), True),
        (TensorProto.FLOAT, 2**24 + 1, False),
        (TensorProto.INT8, 128, False),
        (TensorProto.INT8, -128.0, True),
        (TensorProto.UINT8, -1, False),
        (TensorProto.INT64, float("nan"), False),
        (TensorProto.INT32, True, True),
    ],
)
def test_what_a_dtype_can_hold(dtype, value, fits):
    model = added((1,), dtype)
    if fits:
        assert load_model(model, {}, {"b": value}).input_names == ("a",)
    else:
        assert "has values that are no " in refusal(model, {}, {"b": value})


def test_a_constant_is_rounded_to_bfloat16():
    found = as_constant("w", [0.1, -3], np.dtype("bfloat16"), (2,), "the model")
    assert found.dtype.name == "bfloat16"
    assert found.astype("float32").tolist() == [0.10009765625, -3.0]
    np.testing.assert_array_equal(
        as_constant("w", found, np.dtype("float32"), (2,), "the model"), found.astype("float32")
    )
