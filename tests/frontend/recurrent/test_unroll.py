"""Recurrent operators, unrolled, compute what ONNX Runtime's own ones do."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from recurrent_models import BATCH, FEATURES, HIDDEN, STEPS, layers, model, numbers, recurrent, run

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.fix_inputs import fix_inputs
from tvm_rammer.frontend.onnx.fold import fold
from tvm_rammer.frontend.onnx.onnx_file import in_memory
from tvm_rammer.frontend.onnx.recurrent import unroll_recurrent

X = numbers(STEPS, BATCH, FEATURES, seed=9)
DIRECTIONS = ["forward", "reverse", "bidirectional"]
BY_KIND = {
    "LSTM": st.fixed_dictionaries({}, optional={"input_forget": st.just(1)}),
    "GRU": st.fixed_dictionaries({}, optional={"linear_before_reset": st.just(1)}),
    "RNN": st.just({}),
}
CLIPS = st.fixed_dictionaries({}, optional={"clip": st.sampled_from([0.1, 0.5])})
LENGTHS = st.lists(st.integers(1, STEPS), min_size=BATCH, max_size=BATCH)


def sized(proto: onnx.ModelProto, x: np.ndarray = X) -> onnx.ModelProto:
    """The model as the front end has it where it unrolls: all shapes are known."""
    fixed = fix_inputs(in_memory(proto), {"x": x.shape}, {}, "the model").proto
    fold(fixed, "the model")
    return fixed


def unrolled(proto: onnx.ModelProto, x: np.ndarray = X) -> onnx.ModelProto:
    made = sized(proto, x)
    unroll_recurrent(made, "the model")
    assert not {node.op_type for node in made.graph.node} & {"LSTM", "GRU", "RNN"}
    return made


def assert_same(proto: onnx.ModelProto, x: np.ndarray = X) -> None:
    for got, want in zip(run(unrolled(proto, x), x), run(proto, x), strict=True):
        assert got.shape == want.shape
        assert_close(got, want)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(BY_KIND)), st.sampled_from(DIRECTIONS))
def test_every_operator_in_every_direction(data, kind, direction):
    # ONNX Runtime couples gates or reads peepholes, not both at once.
    attributes = data.draw(BY_KIND[kind]) | data.draw(CLIPS)
    peepholes = kind == "LSTM" and "input_forget" not in attributes and data.draw(st.booleans())
    assert_same(
        recurrent(
            kind,
            direction=direction,
            bias=data.draw(st.booleans()),
            lengths=data.draw(st.none() | LENGTHS),
            start=data.draw(st.booleans()),
            peepholes=peepholes,
            **attributes,
        )
    )


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("LSTM", {"activations": ["HardSigmoid", "tanh", "Elu"]}),
        (
            "LSTM",
            {
                "activations": ["HardSigmoid", "ScaledTanh", "Elu"],
                "activation_alpha": [0.3, 0.8, 0.7],
                "activation_beta": [0.4, 1.2],
            },
        ),
        ("GRU", {"activations": ["Softsign", "Softplus"]}),
        ("GRU", {"activations": ["LeakyRelu", "ThresholdedRelu"], "activation_alpha": [0.3, 0.1]}),
        ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
        ("RNN", {"activations": ["Relu", "Tanh"], "direction": "bidirectional"}),
    ],
)
def test_activations(kind, attributes):
    assert_same(recurrent(kind, **attributes))


@pytest.mark.parametrize("version", [9, 13, 18, 21])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_versions_of_the_operators(kind, version):
    assert_same(recurrent(kind, version=version, direction="bidirectional", lengths=[2, 4]))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_batch_first(kind):
    """ONNX Runtime has no such layout: the other one, with axes exchanged, says the same."""
    turned = X.swapaxes(0, 1).copy()
    got = run(unrolled(recurrent(kind, layout=1), turned), turned)
    every, *states = run(recurrent(kind), X)
    assert_close(got[0], every.transpose(2, 0, 1, 3))
    for state, want in zip(got[1:], states, strict=True):
        assert_close(state, want.swapaxes(0, 1))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_layers_read_each_others_steps(direction):
    """Nothing between two layers waits for all steps: only the input and the result are whole."""
    proto = layers(3, direction, "steps")
    x = numbers(STEPS, BATCH, HIDDEN)
    assert_same(proto, x)
    made = unrolled(proto, x)
    readers = [node for node in made.graph.node if "joined" in "".join(node.input)]
    assert not readers
    splits = [node for node in made.graph.node if node.op_type == "Split" and "x" in node.input]
    assert len(splits) == 1


def test_results_that_nobody_asks_for():
    node = helper.make_node("GRU", ["x", "W", "R"], ["", "last"], hidden_size=HIDDEN)
    weights = {"W": numbers(1, 3 * HIDDEN, FEATURES), "R": numbers(1, 3 * HIDDEN, HIDDEN, seed=1)}
    assert_same(model([node], weights, (STEPS, BATCH, FEATURES), ["last"]))


def test_a_model_without_such_operators_stays():
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {}, (2, 2), ["y"])
    before = proto.SerializeToString()
    unroll_recurrent(proto, "the model")
    assert proto.SerializeToString() == before


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_compiled(direction):
    x = numbers(STEPS, BATCH, HIDDEN)
    proto = layers(2, direction, "steps")
    library = tvm_rammer.build(proto, shapes={"x": x.shape}, policy="wavefront")
    graph_module = library.create()
    graph_module.set_input("x", x)
    graph_module.run()
    (want,) = run(proto, x)
    assert_close(graph_module.get_output(0).numpy(), want)
    # Weights are split, transposed and added up when compiling.
    names = {
        operator.name for program in library.programs.values() for operator in program.operators
    }
    assert len([name for name in names if "transpose" in name]) <= (direction == "bidirectional")


@pytest.mark.parametrize("which", [True, False])
def test_in_a_branch_that_data_decide(which):
    """The branch is unrolled by itself, with the weights of the graph around it."""
    proto = recurrent("GRU")
    graph = proto.graph
    first, _ = graph.output
    inner = helper.make_graph(list(graph.node), "taken", [], [first])
    zeros = numpy_helper.from_array(np.zeros((STEPS, 1, BATCH, HIDDEN), "float32"))
    constant = helper.make_node("Constant", [], ["zeros"], value=zeros)
    none = helper.make_graph(
        [constant], "none", [], [helper.make_tensor_value_info("zeros", 1, zeros.dims)]
    )
    choice = helper.make_node("If", ["which"], ["r"], then_branch=inner, else_branch=none)
    del graph.node[:], graph.output[:]
    graph.node.append(choice)
    graph.input.append(helper.make_tensor_value_info("which", onnx.TensorProto.BOOL, ()))
    graph.output.append(helper.make_tensor_value_info("r", 1, zeros.dims))
    module = tvm_rammer.build(proto, policy="sequential", shapes={"x": X.shape}).create()
    module.set_input("x", X)
    module.set_input("which", np.array(which))
    module.run()
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, {"x": X, "which": np.array(which)})
    assert_close(module.get_output(0).numpy(), want)


# Bad input


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as refused:
        unroll_recurrent(proto, "the model")
    return str(refused.value)


def test_unknown_sizes():
    proto = recurrent("LSTM")
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "features"
    assert refusal(proto) == (
        "the model: LSTM (node 'cell') cannot be compiled: how many features its input has, or of "
        "which sizes its weights are, is not known; give the shapes of the model's inputs"
    )


def test_no_steps():
    assert refusal(layers(1, "forward", 0)).endswith(
        " has no steps: its input is empty; give it a step at least"
    )


def test_an_activation_that_does_not_exist():
    assert refusal(recurrent("RNN", activations=["Gelu"])) == (
        "the model: RNN (node 'cell') has the activation 'Gelu'; ONNX defines Affine, Elu, "
        "HardSigmoid, LeakyRelu, Relu, ScaledTanh, Sigmoid, Softplus, Softsign, Tanh, "
        "ThresholdedRelu"
    )


def test_too_few_activations():
    assert refusal(recurrent("LSTM", activations=["Tanh"])) == (
        "the model: LSTM (node 'cell') has 1 activations; it needs 3 for each direction"
    )


def test_an_activation_without_its_parameters():
    assert refusal(recurrent("RNN", activations=["Affine"], activation_alpha=[1.0])) == (
        "the model: RNN (node 'cell') has the activation 'Affine' without activation_beta; "
        "export the model again"
    )


def test_a_direction_that_does_not_exist():
    assert refusal(recurrent("RNN", direction="sideways")) == (
        "the model: RNN (node 'cell') has the direction 'sideways'; "
        "ONNX defines forward, reverse, bidirectional"
    )


def test_more_steps_than_can_be_compiled():
    text = refusal(layers(1, "bidirectional", 3000))
    assert text.endswith(
        "and what is like it have 6,000 steps in all, of which no more than 5,000 are unrolled; "
        "compile the model for a shorter input"
    )
