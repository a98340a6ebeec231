"""``If`` with a condition that is data runs the branch that it takes, and both are planned."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend import load_model

X = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
W = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")


def graph(name, nodes, inputs, outputs, constants=()):
    kinds = {"x": (TensorProto.FLOAT, (4, 8)), "cond": (TensorProto.BOOL, ())}
    return helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(each, *kinds[each]) for each in inputs],
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants],
    )


def model(main: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def choice(then, other, after=()) -> onnx.ModelProto:
    """``then`` or ``other``, graphs that may read ``before``; ``after`` reads ``r``."""
    node = helper.make_node("If", ["cond"], ["r"], "pick", then_branch=then, else_branch=other)
    before = helper.make_node("Neg", ["x"], ["before"])
    outputs = ["z"] if after else ["r"]
    nodes = [before, node, *after]
    return model(graph("main", nodes, ["x", "cond"], outputs, [("w", W), ("rows", ROWS)]))


ROWS = np.array([2, 16])
PRODUCTS = graph(
    "products",
    [
        helper.make_node("MatMul", ["x", "own"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Add", ["c", "b"], ["t"]),
    ],
    [],
    ["t"],
    [("own", W.T.copy())],
)
SOFTMAX = graph(
    "softmax",
    [
        helper.make_node("MatMul", ["before", "w"], ["d"]),
        helper.make_node("Softmax", ["d"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["e"]),
    ],
    [],
    ["e"],
)
NOTHING = graph("nothing", [helper.make_node("Identity", ["before"], ["n"])], [], ["n"])
NESTED = graph(
    "nested",
    [
        helper.make_node("Tanh", ["before"], ["h"]),
        helper.make_node("If", ["cond"], ["k"], then_branch=PRODUCTS, else_branch=SOFTMAX),
        helper.make_node("Add", ["h", "k"], ["m"]),
    ],
    [],
    ["m"],
)
RESHAPED = graph("rows", [helper.make_node("Reshape", ["x", "rows"], ["g"])], [], ["g"])
AFTER = [
    helper.make_node("MatMul", ["r", "w"], ["y"]),
    helper.make_node("Add", ["y", "before"], ["z"], "after"),
]


def assert_same(proto: onnx.ModelProto) -> tvm_rammer.Library:
    library = tvm_rammer.build(proto, policy="sequential", num_veus=2)
    module = library.create()
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for condition in (True, False, True):
        inputs = {"x": X, "cond": np.array(condition)}
        for name, value in inputs.items():
            module.set_input(name, value)
        module.run()
        (want,) = session.run(None, inputs)
        np.testing.assert_allclose(module.get_output(0).numpy(), want, atol=2e-5)
    return library


@pytest.mark.parametrize(
    ("then", "other"),
    [(PRODUCTS, SOFTMAX), (NOTHING, PRODUCTS), (NESTED, NOTHING), (SOFTMAX, NESTED)],
    ids=lambda branch: branch.name,
)
def test_results_are_those_of_onnx_runtime(then, other):
    assert_same(choice(then, other, AFTER))


def test_both_branches_are_planned():
    """The products in one, the products around a softmax in the other."""
    library = assert_same(choice(PRODUCTS, SOFTMAX, AFTER))
    assert len(library.programs) >= 2


def test_a_branch_holds_its_operators():
    """Nothing of it is computed in front of the condition but what others read as well."""
    module = load_model(choice(PRODUCTS, SOFTMAX, AFTER)).module
    outside = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    kinds = [str(value.op.name) for value in outside if hasattr(value, "op")]
    assert kinds == ["relax.negative", "relax.matmul", "relax.add"]


@pytest.mark.parametrize("condition", [True, False])
def test_a_condition_may_have_an_axis(condition):
    proto = choice(PRODUCTS, SOFTMAX)
    proto.graph.input[1].type.tensor_type.shape.dim.add().dim_value = 1
    module = tvm_rammer.build(proto, policy="sequential", num_veus=2).create()
    module.set_input("x", X)
    module.set_input("cond", np.array([condition]))
    module.run()
    inputs = {"x": X, "cond": np.array([condition])}
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, atol=2e-5)


def test_results_of_two_shapes_may_be_handed_over():
    assert_same(choice(RESHAPED, NOTHING))


def test_results_of_two_shapes_cannot_be_computed_with():
    after = [helper.make_node("Sigmoid", ["r"], ["z"])]
    with pytest.raises(ModelError) as caught:
        load_model(choice(RESHAPED, NOTHING, after))
    assert str(caught.value) == (
        "the model: If (node 'pick') gives 'r' as float (4, 8) or as float (2, 16), which TVM "
        "cannot compute with; export a model whose branches agree, or fix the condition 'cond'"
    )


def test_an_operator_that_nobody_knows_is_named_in_a_branch():
    counts = {"mode": "TF", "ngram_counts": [0], "ngram_indexes": [0], "pool_int64s": [2]}
    limits = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.INT64),
        helper.make_node("TfIdfVectorizer", ["n"], ["q"], "odd", **counts, **limits),
    ]
    strange = graph("strange", nodes, [], ["q"])
    with pytest.raises(ModelError, match=r"TfIdfVectorizer \(node 'odd'\)"):
        load_model(choice(strange, NOTHING))
