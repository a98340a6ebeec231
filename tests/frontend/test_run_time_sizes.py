"""Sizes that are data at run time: what follows gives what ONNX Runtime gives, or is refused."""

from __future__ import annotations

import itertools
import random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from run_time_graphs import CONSUMERS, PRODUCERS, Graph
from tvm import relax

import tvm_rammer
from tvm_rammer.errors import InputError, ModelError

OPTIONS = {"policy": "sequential", "num_veus": 1}


def check(graph: Graph, outputs: list[str]) -> None:
    """Both runs of one compiled model give what ONNX Runtime gives."""
    model = graph.model(outputs)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    module = tvm_rammer.build(model, "llvm", **OPTIONS).create()
    for feed in graph.feeds:
        for name, value in feed.items():
            module.set_input(name, value)
        module.run()
        for number, want in enumerate(session.run(None, feed)):
            got = module.get_output(number).numpy()
            assert (got.shape, got.dtype) == (want.shape, want.dtype), outputs[number]
            np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=outputs[number])


#: The others take as long each.
QUICK = ("boxes", "slice")


@pytest.mark.parametrize(
    "producer",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in PRODUCERS],
)
def test_what_follows_a_size_of_run_time(producer):
    graph = Graph()
    value = PRODUCERS[producer](graph)
    check(graph, [value[0], *(follow(graph, *value)[0] for follow in CONSUMERS.values())])


CHAINS = random.Random(0).sample([*itertools.product(CONSUMERS, CONSUMERS)], 240)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PRODUCERS)))
def test_chains_of_what_follows(number):
    """Twenty chains of two behind each."""
    graph = Graph()
    value = [*PRODUCERS.values()][number](graph)
    outputs = []
    for first, second in CHAINS[number :: len(PRODUCERS)]:
        outputs.append(CONSUMERS[second](graph, *CONSUMERS[first](graph, *value))[0])
    check(graph, outputs)


def test_boxes_left_by_suppression_are_as_many_as_there_are():
    """TVM's operator says that all boxes are left; a Reshape would give all of them."""
    graph = Graph()
    rows, _ = PRODUCERS["boxes"](graph)
    bounds = (graph.constant([bound]) for bound in (2, 3, 1))
    column = graph.op("Slice", rows, *bounds)
    check(graph, [graph.op("Reshape", column, graph.constant([-1]))])


def refusal(graph: Graph, output: str) -> str:
    with pytest.raises(ModelError) as caught:
        tvm_rammer.build(graph.model([output]), "llvm", **OPTIONS)
    return str(caught.value)


@pytest.mark.parametrize(
    ("operator", "operand", "name"),
    [
        ("Pad", np.array([1, 0]), "pads"),
        ("ReduceSum", np.array([0]), "axes"),
        ("CumSum", np.array(0), "axis"),
    ],
)
def test_operands_that_must_be_constants(operator, operand, name):
    graph = Graph()
    x = graph.floats(4)
    output = graph.op(operator, x, graph.input(operand, operand))
    assert refusal(graph, output) == (
        f"the model: {operator} (node '{operator}0_0') cannot be compiled: of its {name}, 'x1', "
        "the value is known only at run time; fix the inputs that decide it with constants="
    )


def test_resizing_by_a_filter_what_has_a_size_of_run_time():
    graph = Graph()
    value = graph.op("Reshape", graph.op("Unique", graph.floats(9)), graph.constant([1, 1, -1]))
    scales = graph.constant([1, 1, 2], "float32")
    output = graph.op("Resize", value, "", scales, mode="linear", antialias=1)
    assert refusal(graph, output) == (
        "the model: Resize (node 'Resize2_0') cannot be compiled: the shape of 'Reshape1_0' is "
        "known only at run time; fix the inputs that decide it with constants=, or compile what "
        "follows as a model of its own"
    )


def test_squeezing_without_axes_what_has_a_size_of_run_time():
    graph = Graph()
    output = graph.op("Squeeze", graph.op("Unique", graph.floats(9)))
    assert refusal(graph, output) == (
        "the model: TVM cannot import Squeeze (node 'Squeeze1_0'): which sizes are 1 is known only "
        "at run time; name its axes"
    )


def places(graph: Graph, *values: list[int]) -> str:
    """Where a vector is not 0."""
    found = graph.op("NonZero", graph.input(*(np.array(value, "float32") for value in values)))
    return graph.op("Squeeze", found, graph.constant([0]))


@pytest.mark.parametrize("other", ["constant", "data", "shape"])
def test_sizes_that_do_not_match_end_the_run(other):
    """3 by 5 is refused; 1 by 5 is repeated."""
    graph = Graph()
    three = places(graph, [1, 0, 1, 0, 1], [0, 0, 0, 1, 0])
    five = graph.constant([0, 100, 200, 300, 400])
    if other != "constant":
        five = places(graph, [1, 1, 1, 1, 1], [1, 1, 1, 1, 1])
    kind, five = ("Expand", graph.op("Shape", five)) if other == "shape" else ("Add", five)
    model = graph.model([graph.op(kind, three, five)])
    module = tvm_rammer.build(model, "llvm", **OPTIONS).create()
    wrong, right = graph.feeds
    for name, value in wrong.items():
        module.set_input(name, value)
    lead = "^the values of the inputs lead to a tensor whose dimension 0 is "
    with pytest.raises(InputError, match=lead):
        module.run()
    for name, value in right.items():
        module.set_input(name, value)
    module.run()
    (want,) = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, right)
    np.testing.assert_array_equal(module.get_output(0).numpy(), want)


@pytest.mark.parametrize("known", ["bounds", "nothing"])
def test_backwards_from_far_before_the_front(known):
    """The first element is left, if there is one."""
    graph = Graph()
    value = places(graph, [0, 1, 1, 1], [0, 0, 0, 0])
    start, end = np.array([-9]), np.array([-(2**63)])
    bounds = [
        graph.constant(each) if known == "bounds" else graph.input(each, each)
        for each in (start, end)
    ]
    backwards = graph.op("Slice", value, *bounds, graph.constant([0]), graph.constant([-1]))
    check(graph, [backwards])


def test_one_value_is_expanded_to_itself():
    """It is a tensor for one operand and a shape for the other."""
    graph = Graph()
    shape = graph.op("Shape", graph.op("NonZero", graph.floats(1, 9)))
    last = graph.op("Slice", shape, graph.constant([1]), graph.constant([2]), graph.constant([0]))
    model = graph.model([graph.op("Expand", last, last)])
    module = tvm_rammer.build(model, "llvm", **OPTIONS).create()
    for feed in graph.feeds:
        for name, value in feed.items():
            module.set_input(name, value)
        module.run()
        count = np.count_nonzero(feed["x0"])
        np.testing.assert_array_equal(module.get_output(0).numpy(), np.full(count, count))


def test_values_from_which_other_sizes_follow_than_the_model_says_are_refused():
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [2])
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, [3, 1])
    wide = helper.make_tensor_value_info("wide", TensorProto.FLOAT, [3, None])
    nodes = [helper.make_node("Expand", ["data", "shape"], ["wide"])]
    graph = helper.make_graph(nodes, "expand", [data, shape], [wide])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    module = tvm_rammer.build(model, "llvm", **OPTIONS).create()
    data = np.ones((3, 1), np.float32)
    assert module(data, np.array([3, 4]))[0].numpy().shape == (3, 4)
    with pytest.raises(InputError) as refused:
        module(data, np.array([0, 4]))
    assert str(refused.value) == (
        "the values of the inputs lead to a tensor whose dimension 0 is 0, and the model says 3: "
        "give values from which sizes follow that fit"
    )


@pytest.mark.parametrize("kind", ["Concat", "sequence"])
def test_parts_with_sizes_of_the_run_are_concatenated(kind):
    """Of the axes that were not cut, nobody knows before the run that they are equal."""
    graph = Graph()
    data, middle = graph.floats(6, 2), graph.input([2], [5])
    parts = [
        graph.op("Slice", data, graph.constant([0]), middle),
        graph.op("Slice", data, middle, graph.constant([6])),
    ]
    if kind == "sequence":
        sequence = graph.op("SequenceConstruct", *parts)
        check(graph, [graph.op("ConcatFromSequence", sequence, axis=0)])
    else:
        check(graph, [graph.op("Concat", *parts, axis=0)])


def test_what_needs_unknown_shapes_is_named():
    x = relax.Var("x", relax.TensorType((6, 2), "float32"))
    ends = relax.Var("ends", relax.TensorType((2,), "int64"))
    zero, one = (relax.const(np.full(2, each), "int64") for each in (0, 1))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, ends]):
        part = builder.emit(relax.op.dynamic_strided_slice(x, zero, ends, one))
        other = builder.emit(relax.op.dynamic_strided_slice(x, zero, one, one))
        builder.emit_func_output(builder.emit(relax.op.add(part, other)))
    with pytest.raises(ModelError) as error:
        tvm_rammer.build(builder.get(), "llvm", **OPTIONS)
    assert str(error.value) == (
        "TVM has no code for the operator add where only the run tells the shapes of what it "
        "reads: let them follow from the shapes of the inputs, or give what decides on them as "
        "`constants`"
    )


def test_sizes_that_would_be_divided_by_nothing_end_the_run():
    """A division by 0 would end the process."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        quarters (float[n, 4] x) => (float[q, r] y)
        <int64 zero = {0}, int64 four = {4}, int64[1] first = {0}, int64[1] rest = {-1}> {
            sizes = Shape (x)
            rows = Gather (sizes, zero)
            quarter = Div (rows, four)
            one = Unsqueeze (quarter, first)
            shape = Concat <axis = 0> (one, rest)
            y = Reshape (x, shape)
        }
        """
    )
    module = tvm_rammer.build(model, "llvm", shapes={"x": ("n", 4)}, **OPTIONS).create()
    for rows, shape in ((8, (2, 16)), (9, (2, 18)), (12, (3, 16))):
        assert module(np.ones((rows, 4), "float32"))[0].numpy().shape == shape
    with pytest.raises(InputError, match="does not take these inputs"):
        module(np.ones((3, 4), "float32"))
