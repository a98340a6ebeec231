"""Recurrent operators compute what ONNX Runtime's do, as many steps and sequences as a run has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from close import assert_close
from onnx import TensorProto, helper
from recurrent_models import BATCH, FEATURES, GATES, HIDDEN, layers, model, numbers, recurrent

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.recurrent import unroll_recurrent
from tvm_rammer.frontend.onnx.recurrent.node import QUANTIZED
from tvm_rammer.runtime.onnx_reference import run_onnxruntime

DIRECTIONS = ["forward", "reverse", "bidirectional"]
KINDS = sorted(GATES)
#: Where states have no bounds, what rounding differs by grows from step to step.
FEW, LENGTHS = (1, 7, 2), (1, 5, 2, 33)


def built(proto: onnx.ModelProto, *shape: int | str, **shapes: tuple[int | str, ...]):
    library = tvm_rammer.build(proto, policy="sequential", shapes={"x": shape, **shapes})
    return library.create()


def assert_same(module, proto: onnx.ModelProto, **given: np.ndarray) -> None:
    found = [each.numpy() for each in module(**given)]
    for got, want in zip(found, run_onnxruntime(proto, given), strict=True):
        assert got.shape == want.shape
        assert_close(got, want)


def assert_steps(proto: onnx.ModelProto, lengths: tuple[int, ...] = LENGTHS) -> None:
    """For several numbers of steps of a known number of sequences."""
    module = built(proto, "t", BATCH, FEATURES)
    for steps in lengths:
        assert_same(module, proto, x=numbers(steps, BATCH, FEATURES, seed=steps))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_steps(kind, direction):
    """From states that are given, with biases."""
    assert_steps(recurrent(kind, direction=direction, sizes=("t", BATCH)))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_sequences(kind, direction):
    """From zeros; eight sequences and more are computed in pairs."""
    proto = recurrent(kind, direction=direction, start=False, sizes=("t", "b"))
    module = built(proto, "t", "b", FEATURES)
    for steps, batch in ((1, 1), (5, 3), (2, 8), (7, 9), (3, 2)):
        assert_same(module, proto, x=numbers(steps, batch, FEATURES, seed=steps))


@pytest.mark.parametrize("kind", KINDS)
def test_sequences(kind):
    """Of a known number of steps."""
    proto = recurrent(kind, start=False, bias=False, sizes=(4, "b"))
    module = built(proto, 4, "b", FEATURES)
    for batch in (1, 2, 11):
        assert_same(module, proto, x=numbers(4, batch, FEATURES))


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_lengths_that_are_inputs(kind):
    """A sequence that is over keeps its state, and its results are 0."""
    proto = recurrent(kind, direction="bidirectional", lengths=[1, 2], sizes=("t", "b"))
    names = [name for name in ("state", "memory", "lengths") if name in proto.graph.node[0].input]
    kept = [each for each in proto.graph.initializer if each.name not in names]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    kinds = {"lengths": (TensorProto.INT32, ["b"])}
    for name in names:
        dtype, shape = kinds.get(name, (TensorProto.FLOAT, [2, "b", HIDDEN]))
        proto.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
    module = built(proto, "t", "b", FEATURES)
    for steps, batch in ((1, 1), (5, 3), (4, 9)):
        lengths = np.random.default_rng(batch).integers(1, steps + 1, batch).astype("int32")
        given = {"x": numbers(steps, batch, FEATURES), "lengths": lengths}
        given |= {n: numbers(2, batch, HIDDEN, seed=7) for n in names if n != "lengths"}
        assert_same(module, proto, **given)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("LSTM", {"peepholes": True, "clip": 0.3}),
        ("LSTM", {"input_forget": 1}),
        ("LSTM", {"activations": ["HardSigmoid", "ScaledTanh", "Elu"]}),
        ("LSTM", {"bias": False, "direction": "reverse"}),
        ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
        ("GRU", {"linear_before_reset": 1, "bias": False}),
        ("GRU", {"activations": ["Softsign", "Softplus"]}),
        ("GRU", {"activations": ["LeakyRelu", "ThresholdedRelu"], "activation_alpha": [0.3, 0.1]}),
        ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
        ("RNN", {"activations": ["Relu", "Tanh"], "direction": "bidirectional", "clip": 0.2}),
    ],
)
def test_attributes(kind, attributes):
    if "ScaledTanh" in attributes.get("activations", ()):
        numbers_of = {"activation_alpha": [0.3, 0.8, 0.7], "activation_beta": [0.4, 1.2]}
        attributes = {**attributes, **numbers_of}
    assert_steps(recurrent(kind, sizes=("t", BATCH), **attributes), FEW)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_first(kind):
    """ONNX Runtime has no such layout: the other one, with axes exchanged, says the same."""
    module = built(recurrent(kind, layout=1, sizes=("t", BATCH)), BATCH, "t", FEATURES)
    for steps in LENGTHS:
        x = numbers(steps, BATCH, FEATURES, seed=steps)
        got = [each.numpy() for each in module(x=x.swapaxes(0, 1).copy())]
        every, *states = run_onnxruntime(recurrent(kind, sizes=("t", BATCH)), {"x": x})
        assert_close(got[0], every.transpose(2, 0, 1, 3))
        for state, want in zip(got[1:], states, strict=True):
            assert_close(state, want.swapaxes(0, 1))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_layers(direction):
    proto = layers(2, direction, "t")
    module = built(proto, "t", BATCH, HIDDEN)
    for steps in LENGTHS:
        assert_same(module, proto, x=numbers(steps, BATCH, HIDDEN, seed=steps))


@pytest.mark.parametrize("hidden", [1, 16, 40, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_states(kind, hidden):
    """Whole blocks of elements, and parts of one."""
    gates = GATES[kind]
    node = helper.make_node(kind, ["x", "W", "R", "B"], ["all", "last"], hidden_size=hidden)
    weights = {
        "W": numbers(1, gates * hidden, FEATURES),
        "R": numbers(1, gates * hidden, hidden, seed=1) / 4,
        "B": numbers(1, 2 * gates * hidden, seed=2),
    }
    proto = model([node], weights, ("t", BATCH, FEATURES), ["all", "last"])
    assert_steps(proto)


@pytest.mark.parametrize("kind", KINDS)
def test_double_precision(kind):
    proto = recurrent(kind, sizes=("t", BATCH))
    wide = [onnx.numpy_helper.to_array(each) for each in proto.graph.initializer]
    for tensor, value in zip(proto.graph.initializer, wide, strict=True):
        tensor.CopyFrom(onnx.numpy_helper.from_array(value.astype("float64"), tensor.name))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    module = built(proto, "t", BATCH, FEATURES)
    x = numbers(5, BATCH, FEATURES)
    found = [each.numpy() for each in module(x=x.astype("float64"))]
    wanted = run_onnxruntime(recurrent(kind, sizes=("t", BATCH)), {"x": x})
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == np.float64
        assert_close(got.astype("float32"), want)


def test_what_is_no_number_stays_none():
    proto = recurrent("LSTM", sizes=("t", BATCH))
    x = numbers(3, BATCH, FEATURES)
    x[1, 0, 0] = np.nan
    every = built(proto, "t", BATCH, FEATURES)(x=x)[0].numpy()
    assert np.isnan(every[1:, 0, 0]).all() and not np.isnan(every[:, 0, 1]).any()


def test_results_that_nobody_asks_for():
    node = helper.make_node("GRU", ["x", "W", "R"], ["", "last"], hidden_size=HIDDEN)
    weights = {"W": numbers(1, 3 * HIDDEN, FEATURES), "R": numbers(1, 3 * HIDDEN, HIDDEN, seed=1)}
    assert_steps(model([node], weights, ("t", BATCH, FEATURES), ["last"]))


@pytest.mark.parametrize("which", [True, False])
def test_in_a_branch_that_data_decide(which):
    proto = recurrent("GRU", sizes=("t", BATCH))
    graph = proto.graph
    last = graph.output[1]
    inner = helper.make_graph(list(graph.node), "taken", [], [last])
    zeros = onnx.numpy_helper.from_array(np.zeros((1, BATCH, HIDDEN), "float32"))
    constant = helper.make_node("Constant", [], ["zeros"], value=zeros)
    none = helper.make_graph(
        [constant], "none", [], [helper.make_tensor_value_info("zeros", 1, zeros.dims)]
    )
    choice = helper.make_node("If", ["which"], ["r"], then_branch=inner, else_branch=none)
    del graph.node[:], graph.output[:]
    graph.node.append(choice)
    graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, ()))
    graph.output.append(helper.make_tensor_value_info("r", 1, zeros.dims))
    module = built(proto, "t", BATCH, FEATURES)
    for steps in FEW:
        assert_same(module, proto, x=numbers(steps, BATCH, FEATURES), which=np.array(which))


def test_a_library_in_a_file(tmp_path):
    proto = recurrent("LSTM", direction="bidirectional", start=False, sizes=("t", "b"))
    library = tvm_rammer.build(proto, shapes={"x": ("t", "b", FEATURES)})
    library.export_library(tmp_path / "lstm.so")
    module = tvm_rammer.load(tmp_path / "lstm.so").create()
    for steps, batch in ((3, 1), (2, 9)):
        assert_same(module, proto, x=numbers(steps, batch, FEATURES))


# Bad input


def test_other_numbers_of_sequences():
    """Of states than of the input: the run ends."""
    proto = recurrent("GRU", start=False, sizes=("t", "b"))
    proto.graph.node[0].input[5] = "state"
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, "s", HIDDEN])
    proto.graph.input.append(state)
    module = built(proto, "t", "b", FEATURES, state=(1, "s", HIDDEN))
    with pytest.raises(Exception, match="size"):
        module(x=numbers(2, 3, FEATURES), state=numbers(1, 2, HIDDEN))


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as refused:
        unroll_recurrent(proto, "the model")
    return str(refused.value)


def test_an_activation_that_does_not_exist():
    assert refusal(recurrent("RNN", activations=["Gelu"], sizes=("t", "b"))) == (
        "the model: RNN (node 'cell') has the activation 'Gelu'; ONNX defines Affine, Elu, "
        "HardSigmoid, LeakyRelu, Relu, ScaledTanh, Sigmoid, Softplus, Softsign, Tanh, "
        "ThresholdedRelu"
    )


def test_a_state_that_is_rounded():
    proto = recurrent("LSTM", sizes=("t", BATCH), **{QUANTIZED: 1})
    assert refusal(proto) == (
        "the model: LSTM (node 'cell') cannot be compiled: it rounds its state in each step, and "
        "how many steps and sequences it has is not known; give the shapes of the model's inputs"
    )
