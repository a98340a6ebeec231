"""Loops whose steps only the run counts compute what ONNX Runtime's loops do."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_values import model_of, tensor

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx import loop_steps

N = helper.make_node
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 4)).astype("float32") / 2


COUNT = [tensor("number", [], INT), tensor("going", [], BOOL)]
MORE = tensor("more", [], BOOL)
ON = N("Identity", ["going"], ["more"])


def loop_of(nodes, reads, writes, inputs, outputs, weights=None, counters=COUNT, more=MORE):
    constants = [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    body = helper.make_graph(nodes, "body", [*counters, *reads], [more, *writes], constants)
    return N("Loop", inputs, outputs, "loop", body=body)


def compare(model, feeds, **options):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    library = tvm_rammer.build(model, "llvm", policy="sequential", **options)
    module = library.create()
    for feed in feeds:
        wanted = session.run(None, feed)
        for name, array in feed.items():
            module.set_input(name, array)
        module.run()
        for number, want in enumerate(wanted):
            got = module.get_output(number).numpy()
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return library


def decoder():
    """A state, a result of each step, weights of its own and of the graph around."""
    loop = loop_of(
        [
            N("MatMul", ["state", "own"], ["a"]),
            N("Cast", ["number"], ["time"], to=FLOAT),
            N("Add", ["a", "time"], ["b"]),
            N("MatMul", ["b", "w"], ["c"]),
            N("Tanh", ["c"], ["after"]),
            N("Mul", ["after", "x"], ["part"]),
            ON,
        ],
        [tensor("state", [3, 4])],
        [tensor("after", [3, 4]), tensor("part", [3, 4])],
        ["steps", "", "start"],
        ["end", "parts"],
        {"own": W.T.copy()},
    )
    return model_of(
        [N("Neg", ["x"], ["start"]), loop],
        [tensor("x", [3, 4]), tensor("steps", [], INT)],
        [tensor("end", None), tensor("parts", None)],
        w=W,
    )


X = RNG.standard_normal((3, 4)).astype("float32")


def test_data_say_how_many_steps_there_are():
    feeds = [{"x": X, "steps": np.array(n)} for n in (3, 0, 1, 2, 7, 8, 9, 1000, -1)]
    library = compare(decoder(), feeds)
    # What a step computes is planned.
    assert "matmul" in str(library.report)


def test_a_condition_that_is_data():
    loop = loop_of(
        [
            N("ReduceSum", ["state"], ["sum"], keepdims=0),
            N("Less", ["sum", "most"], ["more"]),
            N("Add", ["state", "x"], ["after"]),
        ],
        [tensor("state", [3, 4])],
        [tensor("after", [3, 4])],
        ["limit", "begins", "x"],
        ["y"],
    )
    model = model_of(
        [loop],
        [tensor("x", [3, 4]), tensor("begins", [], BOOL)],
        [tensor("y", None)],
        most=np.float32(9),
        limit=np.array(6),
    )
    feeds = [
        {"x": np.full((3, 4), each, "float32"), "begins": np.array(begins)}
        for each in (0.01, 0.2, 5)
        for begins in (True, False)
    ]
    compare(model, feeds)


def test_states_that_grow_and_results_whose_sizes_differ_from_run_to_run():
    """Beside what is not zero, of which there are as many as the run finds."""
    loop = loop_of(
        [
            N("Gather", ["found", "number"], ["row"]),
            N("Concat", ["state", "found"], ["after"], axis=0),
            N("Mul", ["found", "row"], ["part"]),
            ON,
        ],
        [tensor("state", [None], INT)],
        [tensor("after", [None], INT), tensor("part", [None], INT)],
        ["steps", "", "none"],
        ["all", "parts"],
    )
    model = model_of(
        [
            N("NonZero", ["x"], ["places"]),
            N("Gather", ["places", "first"], ["found"], axis=0),
            N("Size", ["found"], ["steps"]),
            loop,
        ],
        [tensor("x", [9])],
        [tensor("all", None, dtype=INT), tensor("parts", None, dtype=INT)],
        none=np.zeros(0, np.int64),
        first=np.array(0),
    )
    feeds = [{"x": np.float32([1] * n + [0] * (9 - n))} for n in (5, 1, 9)]
    compare(model, feeds)


def test_loops_in_loops_and_in_branches():
    inner = loop_of(
        [N("Add", ["s", "x"], ["t"]), N("Identity", ["go"], ["on"])],
        [tensor("s", [3, 4])],
        [tensor("t", [3, 4])],
        ["number", "", "state"],
        ["after"],
        counters=[tensor("k", [], INT), tensor("go", [], BOOL)],
        more=tensor("on", [], BOOL),
    )
    outer = loop_of(
        [inner, ON],
        [tensor("state", [3, 4])],
        [tensor("after", [3, 4])],
        ["steps", "", "x"],
        ["inside"],
    )
    then = helper.make_graph([outer], "then", [], [tensor("inside", [3, 4])])
    other = helper.make_graph([N("Neg", ["x"], ["other"])], "else", [], [tensor("other", [3, 4])])
    model = model_of(
        [N("If", ["which"], ["y"], then_branch=then, else_branch=other)],
        [tensor("x", [3, 4]), tensor("which", [], BOOL), tensor("steps", [], INT)],
        [tensor("y", [3, 4])],
    )
    feeds = [
        {"x": X, "which": np.array(which), "steps": np.array(steps)}
        for which in (True, False)
        for steps in (0, 4)
    ]
    compare(model, feeds)


def test_numbers_and_conditions_that_have_an_axis():
    counters = [tensor("number", [1], INT), tensor("going", [1], BOOL)]
    loop = loop_of(
        [
            N("Cast", ["number"], ["time"], to=FLOAT),
            N("Add", ["state", "time"], ["after"]),
            N("ReduceMax", ["after"], ["most"], keepdims=0),
            N("Less", ["most", "limit"], ["less"]),
            N("Reshape", ["less", "one"], ["more"]),
        ],
        [tensor("state", [3, 4])],
        [tensor("after", [3, 4])],
        ["steps", "", "x"],
        ["y"],
        counters=counters,
        more=tensor("more", [1], BOOL),
    )
    model = model_of(
        [loop],
        [tensor("x", [3, 4]), tensor("steps", [1], INT)],
        [tensor("y", None)],
        limit=np.float32(30),
        one=np.array([1]),
    )
    compare(model, [{"x": X, "steps": np.array([n])} for n in (0, 5, 50)])


def test_loops_of_more_operators_than_may_be_unrolled(monkeypatch):
    monkeypatch.setattr(loop_steps, "MOST_OPERATORS", 30)
    model = decoder()
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(np.array(100), "steps"))
    compare(model, [{"x": X}])


def test_weights_that_come_from_a_file_are_constants_of_the_steps(tmp_path):
    wide = RNG.standard_normal((600, 600)).astype("float32") / 30
    loop = loop_of(
        [N("MatMul", ["state", "w"], ["a"]), N("Tanh", ["a"], ["after"]), ON],
        [tensor("state", [2, 600])],
        [tensor("after", [2, 600])],
        ["steps", "", "x"],
        ["y"],
    )
    inputs = [tensor("x", [2, 600]), tensor("steps", [], INT)]
    model = model_of([loop], inputs, [tensor("y", None)], w=wide)
    onnx.save(model, tmp_path / "model.onnx")
    library = tvm_rammer.build(tmp_path / "model.onnx", "llvm", policy="sequential")
    feed = {"x": RNG.standard_normal((2, 600)).astype("float32"), "steps": np.array(3)}
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    (got,) = library.create()(*feed.values())
    np.testing.assert_allclose(got.numpy(), want, atol=1e-4)
    assert "constants 1.4 MiB" in str(library.report)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8"])
def test_states_of_other_types(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    loop = loop_of(
        [N("Mul", ["state", "w"], ["part"]), N("Add", ["part", "x"], ["after"]), ON],
        [tensor("state", [3, 4], kind)],
        [tensor("after", [3, 4], kind), tensor("part", [3, 4], kind)],
        ["steps", "", "x"],
        ["y", "parts"],
    )
    model = model_of(
        [loop],
        [tensor("x", [3, 4], kind), tensor("steps", [], INT)],
        [tensor("y", None, dtype=kind), tensor("parts", None, dtype=kind)],
        w=(np.arange(12).reshape(3, 4) % 3).astype(dtype),
    )
    compare(model, [{"x": np.ones((3, 4), dtype), "steps": np.array(3)}])


def test_a_recurrent_network_in_a_loop():
    """Its steps are operators of a plan in every step of the loop, also without a device."""
    loop = loop_of(
        [
            N("LSTM", ["state", "wx", "wh"], ["sequence"], hidden_size=4),
            N("Squeeze", ["sequence", "one"], ["after"]),
            ON,
        ],
        [tensor("state", [5, 1, 4])],
        [tensor("after", [5, 1, 4])],
        ["steps", "", "x"],
        ["y"],
    )
    model = model_of(
        [loop],
        [tensor("x", [5, 1, 4]), tensor("steps", [], INT)],
        [tensor("y", [5, 1, 4])],
        wx=RNG.standard_normal((1, 16, 4)).astype("float32"),
        wh=RNG.standard_normal((1, 16, 4)).astype("float32") / 4,
        one=np.array([1]),
    )
    feed = {"x": RNG.standard_normal((5, 1, 4)).astype("float32"), "steps": np.array(3)}
    compare(model, [feed])
    compare(model, [feed], backend="interpret")


# What is refused


def message(model):
    with pytest.raises(ModelError) as caught:
        tvm_rammer.build(model, "llvm")
    return str(caught.value)


ADVICE = "fix the inputs that decide how many there are with constants="


def test_states_whose_axes_change():
    loop = loop_of(
        [N("ReduceSum", ["state"], ["after"], keepdims=0), ON],
        [tensor("state", None)],
        [tensor("after", None)],
        ["steps", "", "x"],
        ["y"],
    )
    model = model_of([loop], [tensor("x", [3, 4]), tensor("steps", [], INT)], [tensor("y", None)])
    assert message(model) == (
        "the model: Loop (node 'loop'), whose steps only the run counts, cannot be compiled: a "
        f"step makes float () of the state float (3, 4); {ADVICE}"
    )


def test_states_that_are_sequences():
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    loop = loop_of(
        [N("SequenceInsert", ["state", "x"], ["after"]), ON],
        [helper.make_value_info("state", kind)],
        [helper.make_value_info("after", kind)],
        ["steps", "", "empty"],
        ["all"],
    )
    nodes = [
        N("SequenceEmpty", [], ["empty"], dtype=FLOAT),
        loop,
        N("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    model = model_of(nodes, [tensor("x", [3, 4]), tensor("steps", [], INT)], [tensor("y", None)])
    assert message(model) == (
        "the model: Loop (node 'loop'), whose steps only the run counts, cannot be compiled: how "
        f"many axes 'empty' has is not known, or it is no tensor; {ADVICE}"
    )
