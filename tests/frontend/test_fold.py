"""What shapes and constants decide is computed before the import; nothing else is changed."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_values import tensor

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend import load_model
from tvm_rammer.frontend.onnx.fold import fold

N = helper.make_node


def integers(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model_of(*nodes, inputs, outputs, weights=(), opset=18) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(weights))
    opsets = [helper.make_opsetid("", opset)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A folded copy, which computes what the model does."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fold(copy, "the model")
    onnx.checker.check_model(copy, full_check=True)
    rng = np.random.default_rng(0)
    feed = {
        value.name: rng.standard_normal(
            [d.dim_value for d in value.type.tensor_type.shape.dim]
        ).astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for value in model.graph.input
    }
    for got, want in zip(run(copy, feed), run(model, feed), strict=True):
        np.testing.assert_array_equal(got, want)
    return copy


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def flattening() -> onnx.ModelProto:
    """What exporters write for ``x.view(x.size(0), -1)``."""
    return model_of(
        N("Shape", ["x"], ["s"]),
        N("Gather", ["s", "zero"], ["n"]),
        N("Unsqueeze", ["n", "axis"], ["n1"]),
        N("Concat", ["n1", "rest"], ["to"], axis=0),
        N("Reshape", ["x", "to"], ["y"]),
        inputs=[tensor("x", ("batch", 3, 4))],
        outputs=[tensor("y", None)],
        weights=[
            numpy_helper.from_array(np.array(0), "zero"),
            integers("axis", 0),
            integers("rest", -1),
        ],
    )


def conditional(*nodes, branch, inputs, **graph) -> onnx.ModelProto:
    def made(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], name, [], [tensor(node.output[0], None)])

    node = N(
        "If",
        ["c"],
        ["y"],
        then_branch=made("then", branch[0]),
        else_branch=made("else", branch[1]),
    )
    return model_of(*nodes, node, inputs=inputs, outputs=[tensor("y", None)], **graph)


def test_a_shape_of_a_shape_becomes_a_constant():
    model = flattening()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    made = folded(model)
    assert operators(made) == ["Reshape"]
    values = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
    assert values["to"].tolist() == [2, -1]


def test_the_shapes_that_are_given_decide():
    main = load_model(flattening(), {"x": (2, 3, 4)}).module["main"]
    assert [int(size) for size in main.ret_ty.shape] == [2, 12]


def test_types_of_all_results_are_written_down():
    made = folded(
        model_of(
            N("Relu", ["x"], ["r"]),
            N("Neg", ["r"], ["y"]),
            inputs=[tensor("x", (2, 3))],
            outputs=[tensor("y", None)],
        )
    )
    assert [value.name for value in made.graph.value_info] == ["r"]
    for value in (*made.graph.value_info, *made.graph.output):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [2, 3]


@pytest.mark.parametrize(("rank", "kept"), [(3, "Neg"), (2, "Abs")])
def test_a_branch_that_a_shape_decides_replaces_the_if(rank, kept):
    made = folded(
        conditional(
            N("Shape", ["x"], ["s"]),
            N("Size", ["s"], ["rank"]),
            N("Equal", ["rank", "three"], ["c"]),
            branch=(N("Neg", ["x"], ["t"]), N("Abs", ["x"], ["e"])),
            inputs=[tensor("x", (2,) * rank)],
            weights=[numpy_helper.from_array(np.array(3), "three")],
        )
    )
    assert operators(made) == [kept]
    assert made.graph.node[0].output == ["y"]


def test_inlined_branches_do_not_share_names():
    """Sibling branches may: no one sees both."""

    def branch(operator: str, output: str) -> onnx.GraphProto:
        nodes = [N(operator, ["x"], ["inner"]), N("Neg", ["inner"], [output])]
        weight = numpy_helper.from_array(np.ones(1, "float32"), "w")
        nodes.append(N("Add", ["inner", "w"], [output + "2"]))
        outputs = [tensor(output, None), tensor(output + "2", None), tensor("w", None)]
        return helper.make_graph(nodes[:], "branch", [], outputs, [weight])

    ifs = [
        N(
            "If",
            ["yes"],
            [f"y{n}{k}" for k in range(3)],
            then_branch=branch(operator, "out"),
            else_branch=branch("Sin", "out"),
        )
        for n, operator in enumerate(["Abs", "Exp"])
    ]
    outputs = [tensor(f"y{n}{k}", None) for n in range(2) for k in range(3)]
    yes = numpy_helper.from_array(np.array(True), "yes")
    made = folded(model_of(*ifs, inputs=[tensor("x", (2,))], outputs=outputs, weights=[yes]))
    assert operators(made).count("If") == 0
    assert [n for n in operators(made) if n in ("Abs", "Exp", "Sin")] == ["Abs", "Exp"]


def test_a_nested_if_reads_what_its_branch_computed():
    inner = helper.make_graph([N("Neg", ["a"], ["b"])], "inner", [], [tensor("b", None)])
    other = helper.make_graph([N("Abs", ["a"], ["d"])], "other", [], [tensor("d", None)])
    nested = N("If", ["run"], ["t"], then_branch=inner, else_branch=other)
    then = helper.make_graph([N("Exp", ["x"], ["a"]), nested], "then", [], [tensor("t", None)])
    otherwise = helper.make_graph([N("Abs", ["x"], ["e"])], "else", [], [tensor("e", None)])
    model = model_of(
        N("If", ["yes"], ["y"], then_branch=then, else_branch=otherwise),
        N("Neg", ["y"], ["a_1"]),
        inputs=[tensor("x", (2,)), tensor("run", (), TensorProto.BOOL)],
        outputs=[tensor("a_1", None)],
        weights=[numpy_helper.from_array(np.array(True), "yes")],
    )
    assert operators(folded(model)) == ["Exp", "If", "Neg"]


def test_shapes_inside_of_a_branch_that_stays():
    """A branch may read what was folded outside of it."""
    made = folded(
        conditional(
            N("Shape", ["x"], ["s"]),
            branch=(N("Expand", ["one", "s"], ["t"]), N("Identity", ["x"], ["e"])),
            inputs=[tensor("c", (), TensorProto.BOOL), tensor("x", (2, 3))],
            weights=[numpy_helper.from_array(np.float32(1), "one")],
        )
    )
    assert operators(made) == ["If"]


def test_large_results_stay_computed():
    made = folded(
        model_of(
            N("ConstantOfShape", ["many"], ["zeros"]),
            N("Range", ["from", "to", "step"], ["numbers"]),
            N("Add", ["x", "zeros"], ["a"]),
            N("Cast", ["numbers"], ["floats"], to=TensorProto.FLOAT),
            N("Add", ["a", "floats"], ["y"]),
            inputs=[tensor("x", (1,))],
            outputs=[tensor("y", None)],
            weights=[
                integers("many", 1 << 20),
                *(
                    numpy_helper.from_array(np.array(n), name)
                    for n, name in zip((0, 1 << 20, 1), ("from", "to", "step"), strict=True)
                ),
            ],
        )
    )
    assert operators(made) == ["ConstantOfShape", "Range", "Add", "Cast", "Add"]


def test_random_numbers_are_not_constants():
    model = model_of(
        N("RandomNormal", [], ["a"], shape=(2,)),
        N("RandomNormalLike", ["w"], ["b"]),
        N("Add", ["a", "b"], ["y"]),
        inputs=[],
        outputs=[tensor("y", None)],
        weights=[numpy_helper.from_array(np.ones(2, "float32"), "w")],
    )
    fold(model, "the model")
    assert operators(model) == ["RandomNormal", "RandomNormalLike", "Add"]


def test_an_output_that_is_constant():
    model = model_of(
        N("Shape", ["x"], ["y"]), inputs=[tensor("x", (2, 3))], outputs=[tensor("y", None, 7)]
    )
    assert operators(folded(model)) == []
    assert load_model(model).output_names == ("y",)


def test_a_model_that_nothing_is_known_of_in_advance_stays():
    model = model_of(
        N("NonZero", ["x"], ["n"]),
        N("Shape", ["n"], ["y"]),
        inputs=[tensor("x", (2, 3))],
        outputs=[tensor("y", None, 7)],
    )
    assert operators(folded(model)) == ["NonZero", "Shape"]


def test_a_contradiction_names_node_and_inputs():
    model = model_of(
        N("MatMul", ["x", "w"], ["y"], name="m"),
        inputs=[tensor("x", ("n", "k"))],
        outputs=[tensor("y", None)],
        weights=[numpy_helper.from_array(np.ones((4, 2), "float32"), "w")],
    )
    with pytest.raises(ModelError) as caught:
        load_model(model, {"x": (2, 3)})
    assert str(caught.value) == (
        "the model: ONNX forbids MatMul (node 'm'): Incompatible dimensions for matrix "
        "multiplication; its inputs are 'x' float (2, 3), 'w' float (4, 2); correct the model, "
        "or the shapes that were given"
    )


def test_what_has_no_elements_is_not_computed():
    """Not even from data, and by an operator that TVM's importer takes with elements only."""
    model = model_of(
        N("Trilu", ["x", "k"], ["y"]),
        inputs=[tensor("x", [3, 0, 5]), tensor("k", [], TensorProto.INT64)],
        outputs=[tensor("y", [3, 0, 5])],
        opset=14,
    )
    fold(model, "the model")
    assert operators(model) == []
    (empty,) = model.graph.initializer
    assert (list(empty.dims), empty.data_type) == ([3, 0, 5], TensorProto.FLOAT)
