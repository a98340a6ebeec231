"""Models that ONNX forbids are refused with one line: what, where, what to do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_values import tensor

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend import load_model

N = helper.make_node


def ones(name: str, *shape: int, dtype: str = "float32") -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, dtype), name)


def model_of(*nodes, inputs=(), weights=(), opsets=(("", 18),)) -> onnx.ModelProto:
    inputs = inputs or [tensor("x", (1, 3, 8, 8))]
    graph = helper.make_graph(list(nodes), "graph", inputs, [tensor("y", None)], list(weights))
    imports = [helper.make_opsetid(*each) for each in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def refusal(*nodes, **rest) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(model_of(*nodes, **rest))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("the model: ")


RELU = N("Relu", ["x"], ["y"], name="r")


@pytest.mark.parametrize("version", [0, 999])
def test_a_version_of_operators_that_does_not_exist(version):
    newest = onnx.defs.onnx_opset_version()
    assert refusal(RELU, opsets=[("", version)]) == (
        f"uses version {version} of ONNX's operators; onnx {onnx.__version__} knows 1 to {newest}; "
        "export the model with one of these, or upgrade onnx"
    )


def test_no_version_of_operators():
    assert refusal(RELU, opsets=[("my", 1)]) == (
        "does not say which version of ONNX's operators it uses; export the model again"
    )


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (N("Foo", ["x"], ["y"], name="r", domain="my"), "my.Foo"),
        (N("Foo", ["x"], ["y"], name="r", domain=" "), "' .Foo'"),
        (N("Foo{}", ["x"], ["y"], name="r"), "'Foo{}'"),
        (N("Fo\no", ["x"], ["y"], name="r", domain="a\nb"), r"'a\nb.Fo\no'"),
    ],
)
def test_operators_that_nobody_knows(node, shown):
    assert refusal(node) == (
        f"TVM's ONNX importer does not support {shown} (node 'r'); export the model without"
    )


def test_an_unknown_operator_in_a_branch_that_is_not_taken():
    def branch(operator: str, domain: str) -> onnx.GraphProto:
        node = N(operator, ["x"], ["t"], name="inner", domain=domain)
        return helper.make_graph([node], "branch", [], [tensor("t", None)])

    node = N("If", ["c"], ["y"], then_branch=branch("Relu", ""), else_branch=branch("Foo", "my"))
    taken = model_of(node, weights=[numpy_helper.from_array(np.array(True), "c")])
    assert load_model(taken).input_names == ("x",)
    inputs = [tensor("x", (2,)), tensor("c", (), TensorProto.BOOL)]
    assert refusal(node, inputs=inputs) == (
        "TVM's ONNX importer does not support my.Foo (node 'inner'); export the model without"
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([N("", ["x"], ["y"], name="r")], "'' (node 'r') has no operator"),
        ([N("Relu", ["x"], [], name="r")], "Relu (node 'r') has no results"),
        ([N("Relu", ["x", "x"], ["y"])], "Relu (node 'y') has 2 inputs; ONNX says 1"),
        ([N("Clip", [], ["y"])], "Clip (node 'y') has 0 inputs; ONNX says 1 to 3"),
        ([N("Concat", [], ["y"], axis=0)], "Concat (node 'y') has 0 inputs; ONNX says 1 or more"),
        (
            [N("Relu", ["q"], ["y"])],
            "Relu (node 'y') reads 'q', which nothing computes before it",
        ),
        ([RELU, N("Neg", ["x"], ["y"])], "Neg (node 'y') computes 'y', which is there already"),
        ([N("Relu", ["x"], ["x"])], "Relu (node 'x') computes 'x', which is there already"),
        ([N("Relu", ["x"], ["z"])], "nothing computes the output 'y'"),
    ],
)
def test_graphs_that_are_none(nodes, expected):
    assert refusal(*nodes) == f"{expected}; export the model again"


def test_two_inputs_of_one_name():
    inputs = [tensor("x", (1,)), tensor("x", (2,))]
    assert refusal(RELU, inputs=inputs) == "has two inputs 'x'; export the model again"


def weight(**fields: object) -> onnx.TensorProto:
    return onnx.TensorProto(name="w", **({"data_type": 1, "dims": (8, 2)} | fields))


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (weight(raw_data=b"123"), "has 3 bytes; its shape and element type need 64"),
        (weight(float_data=[1, 2]), "has 2 elements; its shape has 16"),
        (
            weight(dims=(40000, 30000), raw_data=b""),
            "has 0 bytes; its shape and element type need 4800000000",
        ),
        (weight(dims=(-8, 2)), "has the shape (-8, 2)"),
        (weight(data_type=99), "has the element type 99, which ONNX does not know"),
        (weight(data_type=0), "has the element type 0, which ONNX does not know"),
        (weight(data_location=1), "is in another file, which was not loaded"),
    ],
)
def test_weights_that_are_damaged(broken, problem):
    assert refusal(N("MatMul", ["x", "w"], ["y"]), weights=[broken]) == (
        f"the weight 'w' {problem}; export the model again"
    )


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            N("Conv", ["x", "w"], ["y"], kernel_shape=[5, 5]),
            "Attribute kernel_shape is (5, 5), not that of the weights",
        ),
        (
            N("Conv", ["x", "w"], ["y"], pads=[-1, 0, 0, 0]),
            "Attribute pads must not contain negative values",
        ),
        (
            N("MaxPool", ["x"], ["y"], kernel_shape=[50, 50]),
            "its result would have the shape (1, 3, -41, -41)",
        ),
        (N("Add", ["x", "i"], ["y"]), "'x' and 'i' must have one element type"),
    ],
)
def test_nodes_that_contradict_their_inputs(node, reason):
    known = {"x": "float (1, 3, 8, 8)", "w": "float (4, 3, 3, 3)", "i": "int64 (8)"}
    inputs = ", ".join(f"{name!r} {known[name]}" for name in node.input)
    weights = [ones("w", 4, 3, 3, 3), ones("i", 8, dtype="int64")]
    assert refusal(node, weights=weights) == (
        f"ONNX forbids {node.op_type} (node 'y'): {reason}; its inputs are {inputs}; "
        "correct the model, or the shapes that were given"
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_an_operand_that_must_be_a_constant(depth, capfd):
    """Also where it was inside of a branch."""
    summed = N("CumSum", ["x", "k"], ["y" if depth == 1 else "t"], name="summed")
    node = summed
    if depth == 2:
        branch = helper.make_graph([summed], "branch", [], [tensor("t", None)])
        other = helper.make_graph([N("Relu", ["x"], ["t2"])], "other", [], [tensor("t2", None)])
        node = N("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    inputs = [tensor("x", (2, 3)), tensor("k", (), TensorProto.INT64)]
    inputs += [tensor("c", (), TensorProto.BOOL)]
    text = refusal(node, inputs=inputs)
    assert text == (
        "CumSum (node 'summed') cannot be compiled: of its axis, 'k', the value is known only at "
        "run time; fix the inputs that decide it with constants="
    )
    assert capfd.readouterr() == ("", "")


def test_a_sparse_weight():
    model = model_of(N("Add", ["x", "w"], ["y"]))
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    places = helper.make_tensor("places", TensorProto.INT64, [1], [3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [8]))
    with pytest.raises(ModelError) as caught:
        load_model(model)
    assert str(caught.value) == ("the model: the weight 'w' is sparse; export it as a dense tensor")


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("LeakyRelu", "an operator"),
        ("middle", "a value"),
        ("weights", "a weight"),
        ("alpha", "an attribute"),
    ],
)
def test_a_name_that_is_no_text(part, what):
    nodes = [N("LeakyRelu", ["x"], ["middle"], alpha=0.5), N("Add", ["middle", "weights"], ["y"])]
    made = model_of(*nodes, weights=[ones("weights", 8)]).SerializeToString()
    damaged = b"\xff" + part.encode()[1:]
    with pytest.raises(ModelError) as caught:
        load_model(onnx.load_from_string(made.replace(part.encode(), damaged)))
    assert str(caught.value) == (
        f"the model: {damaged!r}, the name of {what}, is no text in UTF-8, the file may be "
        "damaged; export the model again"
    )
