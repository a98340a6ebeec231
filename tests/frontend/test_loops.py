"""Loops become their steps, which compute what ONNX Runtime's loops do."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_node_tests import node_tests

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx import loop_steps
from tvm_rammer.frontend.onnx.fold import fold

N = helper.make_node
X = np.random.default_rng(0).standard_normal((5, 3, 4)).astype("float32")
W = np.random.default_rng(1).standard_normal((4, 4)).astype("float32")


def value(name, shape=None, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def body_of(*nodes, reads=(), writes=(), weights=None):
    """A body that reads ``number`` and ``going``, and writes ``more``, if it is that of a Loop."""
    constants = [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    return helper.make_graph(list(nodes), "body", list(reads), list(writes), constants)


COUNT = [value("number", [], TensorProto.INT64), value("going", [], TensorProto.BOOL)]
MORE = value("more", [], TensorProto.BOOL)
ON = N("Identity", ["going"], ["more"])


def model_of(*nodes, inputs, outputs, opset=18, **weights):
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), constants)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model, feed):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)


def unrolled(model, **feed):
    """The model without loops, which computes the same."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fold(copy, "the model")
    onnx.checker.check_model(copy, full_check=True)
    assert not {"Loop", "Scan"} & {node.op_type for node in copy.graph.node}
    for got, want in zip(run(copy, feed), run(model, feed), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, atol=1e-5)
    return copy


def decoder(steps, opset=18):
    """A loop with a state, a result of each step, weights of its own and of the graph around."""
    body = body_of(
        N("Constant", [], ["own"], value=numpy_helper.from_array(W.T.copy())),
        N("MatMul", ["state", "own"], ["a"]),
        N("Cast", ["number"], ["time"], to=TensorProto.FLOAT),
        N("Add", ["a", "time"], ["b"]),
        N("MatMul", ["b", "w"], ["c"]),
        N("Tanh", ["c"], ["after"]),
        N("Mul", ["after", "scale"], ["part"]),
        ON,
        reads=[*COUNT, value("state", [3, 4])],
        writes=[MORE, value("after", [3, 4]), value("part", [3, 4])],
        weights={"scale": np.float32([1, 2, 3, 4])},
    )
    return model_of(
        N("Neg", ["x"], ["start"]),
        N("Loop", ["steps", "true", "start"], ["end", "parts"], "decode", body=body),
        inputs=[value("x", [3, 4])],
        outputs=[value("end"), value("parts")],
        opset=opset,
        steps=np.array(steps),
        true=np.array(True),
        w=W,
    )


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_loop_of_known_length(steps, opset):
    made = unrolled(decoder(steps, opset), x=X[0])
    kinds = [node.op_type for node in made.graph.node]
    assert kinds.count("MatMul") == 2 * steps
    # All steps read the same weights.
    assert sum(tensor.dims == [4, 4] for tensor in made.graph.initializer) <= 2


def test_a_condition_that_constants_decide():
    """The number is doubled until it is above 20."""
    body = body_of(
        N("Mul", ["n", "two"], ["twice"]),
        N("Less", ["twice", "most"], ["more"]),
        N("Add", ["x", "sum"], ["after"]),
        reads=[*COUNT, value("n", []), value("sum", [3, 4])],
        writes=[MORE, value("twice", []), value("after", [3, 4])],
    )
    model = model_of(
        N("Loop", ["", "true", "one", "x"], ["last", "total"], body=body),
        inputs=[value("x", [3, 4])],
        outputs=[value("last"), value("total")],
        true=np.array(True),
        one=np.float32(1),
        two=np.float32(2),
        most=np.float32(20),
    )
    made = unrolled(model, x=X[0])
    assert [node.op_type for node in made.graph.node].count("Add") == 5


def test_a_loop_behind_branches_whose_shape_is_computed():
    """How many steps there are is known once the branches are folded."""
    branches = {
        f"{kind}_branch": helper.make_graph(
            [
                N("Shape", ["x"], [f"{kind}_shape"]),
                N("Slice", [f"{kind}_shape", "from", "to"], [f"{kind}_rows"]),
                N("Concat", [f"{kind}_rows", "rest"], [f"{kind}_sizes"], axis=0),
                N(operator, ["x"], [f"{kind}_x"]),
                N("Reshape", [f"{kind}_x", f"{kind}_sizes"], [kind]),
            ],
            kind,
            [],
            [value(kind)],
        )
        for kind, operator in (("then", "Neg"), ("else", "Abs"))
    }
    body = body_of(
        N("Add", ["sum", "row"], ["more_sum"]),
        reads=[value("sum", [12]), value("row", [12])],
        writes=[value("more_sum", [12])],
    )
    model = model_of(
        N("If", ["which"], ["rows"], **branches),
        N("Scan", ["zeros", "rows"], ["y"], body=body, num_scan_inputs=1),
        inputs=[value("x", X.shape), value("which", [], TensorProto.BOOL)],
        outputs=[value("y", [12])],
        **{"zeros": np.zeros(12, "float32"), "from": [0], "to": [1], "rest": [-1]},
    )
    for which in (True, False):
        unrolled(model, x=X, which=np.array(which))


def test_loops_in_loops_and_conditions_on_their_numbers():
    inner = body_of(
        N("Add", ["s", "x"], ["t"]),
        N("Identity", ["go"], ["on"]),
        reads=[value("k", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("s")],
        writes=[value("on", [], TensorProto.BOOL), value("t")],
    )
    then = helper.make_graph([N("Neg", ["u"], ["p"])], "then", [], [value("p")])
    other = helper.make_graph([N("Identity", ["u"], ["q"])], "else", [], [value("q")])
    outer = body_of(
        N("Loop", ["number", "", "state"], ["u"], body=inner),
        N("Equal", ["number", "one"], ["is_one"]),
        N("If", ["is_one"], ["after"], then_branch=then, else_branch=other),
        ON,
        reads=[*COUNT, value("state")],
        writes=[MORE, value("after")],
    )
    model = model_of(
        N("Loop", ["steps", "", "x"], ["y"], body=outer),
        inputs=[value("x", [3, 4])],
        outputs=[value("y")],
        steps=np.array(4),
        one=np.array(1),
    )
    made = unrolled(model, x=X[0])
    assert [node.op_type for node in made.graph.node].count("Add") == 0 + 1 + 2 + 3


@pytest.mark.parametrize("reverse_in", [0, 1])
@pytest.mark.parametrize("reverse_out", [0, 1])
@pytest.mark.parametrize("axes", [(0, 0), (1, 1), (-1, -1)])
def test_scans(reverse_in, reverse_out, axes):
    body = body_of(
        N("Add", ["sum", "slice"], ["after"]),
        N("Tanh", ["after"], ["part"]),
        reads=[value("sum"), value("slice")],
        writes=[value("after"), value("part")],
    )
    scan = N(
        "Scan",
        ["zero", "x"],
        ["end", "parts"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axes[0]],
        scan_output_axes=[axes[1]],
        scan_input_directions=[reverse_in],
        scan_output_directions=[reverse_out],
    )
    model = model_of(
        scan,
        inputs=[value("x", X.shape)],
        outputs=[value("end"), value("parts")],
        zero=np.zeros(np.delete(X.shape, axes[0]), "float32"),
    )
    unrolled(model, x=X)


@pytest.mark.parametrize(
    "name", ["test_loop11", "test_scan9_sum", "test_scan9_multi_state", "test_scan9_scalar"]
)
def test_node_tests_of_onnx(name):
    case = node_tests()[name]
    names = [value.name for value in case.model.graph.input]
    inputs = dict(zip(names, *case.data_sets[0][:1], strict=True))
    fixed = {key: inputs.pop(key) for key in ("trip_count", "cond") if key in inputs}
    module = tvm_rammer.build(case.model, "llvm", policy="sequential", constants=fixed).create()
    for key, array in inputs.items():
        module.set_input(key, array)
    module.run()
    for number, want in enumerate(case.data_sets[0][1]):
        np.testing.assert_allclose(module.get_output(number).numpy(), want, case.rtol, case.atol)


# What is refused


def message(model):
    with pytest.raises(ModelError) as caught:
        fold(model, "the model")
    return str(caught.value)


def test_too_many_operators(monkeypatch):
    monkeypatch.setattr(loop_steps, "MOST_OPERATORS", 30)
    unrolled(decoder(3), x=X[0])
    # Others stay loops, of which nothing is unrolled.
    longer = decoder(4)
    fold(longer, "the model")
    assert [node.op_type for node in longer.graph.node] == ["Neg", "Loop"]
    scan = model_of(
        N(
            "Scan",
            ["zero", "x"],
            ["end"],
            "add",
            body=body_of(
                N("Add", ["sum", "slice"], ["after"]),
                reads=[value("sum"), value("slice")],
                writes=[value("after")],
            ),
            num_scan_inputs=1,
        ),
        inputs=[value("x", [31, 4])],
        outputs=[value("end")],
        zero=np.zeros(4, "float32"),
    )
    assert message(scan) == (
        "the model: the loops become more than 30 operators, Scan (node 'add') 1 in each step; "
        "take fewer steps, or compile its body as a model of its own"
    )
