"""Inputs that are, in every run, what outputs were after the run before."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import tvm_rammer
from tvm_rammer.errors import InputError

FLOAT = onnx.TensorProto.FLOAT
BUILD = {"policy": "wavefront", "num_veus": 2}


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def onnx_model(nodes: list[Any], inputs: dict, outputs: dict, weights: dict) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "states",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def recurrent() -> onnx.ModelProto:
    """A recurrent network with a window over its inputs; states stand between the others."""
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["xw"]),
        make("MatMul", ["h", "u"], ["hu"]),
        make("Add", ["xw", "hu"], ["sum"]),
        make("Tanh", ["sum"], ["hn"]),
        make("Concat", ["c", "x"], ["longer"], axis=0),
        make("Slice", ["longer", "one", "end", "zero"], ["cn"]),
        make("ReduceSum", ["cn", "zero"], ["total"]),
        make("MatMul", ["hn", "v"], ["y"]),
    ]
    weights = {"w": floats(8, 16) / 4, "u": floats(16, 16, seed=1) / 4, "v": floats(16, 4)}
    numbers = {name: np.array([n]) for name, n in (("one", 1), ("end", 9), ("zero", 0))}
    return onnx_model(
        nodes,
        {"h": (FLOAT, [1, 16]), "x": (FLOAT, [1, 8]), "c": (FLOAT, [3, 8])},
        {
            "hn": (FLOAT, [1, 16]),
            "y": (FLOAT, [1, 4]),
            "cn": (FLOAT, [3, 8]),
            "total": (FLOAT, [1, 8]),
        },
        weights | numbers,
    )


STATES = {"h": "hn", "c": "cn"}


def assert_goes_on(instance: Any) -> None:
    """Steps of an instance of :func:`recurrent` are those of ONNX's reference."""
    reference = ReferenceEvaluator(recurrent())
    h, c = np.zeros((1, 16), "float32"), np.zeros((3, 8), "float32")
    for step in range(5):
        x = floats(1, 8, seed=step)
        h, y, c, total = reference.run(None, {"h": h, "x": x, "c": c})
        for got, want in zip(instance(x), (y, total), strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
        assert list(instance.state) == ["h", "c"]
        np.testing.assert_allclose(instance.state["h"].numpy(), h, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(instance.state["c"].numpy(), c)


@pytest.mark.parametrize("form", ["program", "wavefront", "per-op"])
def test_what_was_returned_is_found_by_the_next_run(form, tmp_path):
    library = tvm_rammer.build(recurrent(), states=STATES, form=form, **BUILD)
    assert [info.name for info in library.description.inputs] == ["x"]
    assert [info.name for info in library.description.outputs] == ["y", "total"]
    assert (library.description.interfaces[0].direct is None) == (form == "per-op")
    instance = library.create()
    assert_goes_on(instance)
    instance.reset_state()
    assert_goes_on(instance)
    loaded = tvm_rammer.load(library.export_library(tmp_path / "model.so"))
    assert_goes_on(loaded.create())
    assert_goes_on(library.replan(policy="sequential", num_veus=1).create())


def test_one_of_two_may_stay_an_input():
    library = tvm_rammer.build(recurrent(), states={"c": "cn"}, **BUILD)
    assert [info.name for info in library.description.inputs] == ["h", "x"]
    assert [info.name for info in library.description.outputs] == ["hn", "y", "total"]


def test_a_check_compares_states_too(monkeypatch):
    pytest.importorskip("onnxruntime")
    from tvm_rammer.runtime.check import check_library

    library = tvm_rammer.build(recurrent(), states=STATES, check=True, **BUILD)
    errors = check_library(library, recurrent(), states=STATES)
    assert [each.name for each in errors] == ["y", "total", "h", "c"]


def test_states_of_a_relax_module():
    x, h = (relax.Var(name, relax.TensorType((2, 4), "float32")) for name in "xh")
    builder = relax.BlockBuilder()
    with builder.function("main", [h, x]):
        with builder.dataflow():
            new = builder.emit(relax.op.add(relax.op.multiply(h, relax.const(0.5)), x))
            result = builder.emit_output(relax.Tuple([new, builder.emit(relax.op.exp(new))]))
        builder.emit_func_output(result)
    library = tvm_rammer.build(builder.get(), states={"h": "output_0"}, **BUILD)
    instance, expected = library.create(), np.zeros((2, 4), "float32")
    for step in range(3):
        value = floats(2, 4, seed=step)
        expected = expected / 2 + value
        (got,) = instance(value)
        np.testing.assert_allclose(got.numpy(), np.exp(expected), rtol=1e-5)


def decoder(kind: str) -> tuple[onnx.ModelProto, dict[str, str]]:
    """One layer of a decoder whose keys and values are buffers of eight places."""
    make = helper.make_node
    cache, step = (FLOAT, [1, 2, 8, 16]), (FLOAT, [1, 1, 32])
    inputs = {"q": (FLOAT, [1, 1, 64]), "k": step, "v": step, "pk": cache, "pv": cache}
    outputs = {"y": (FLOAT, [1, 1, 64]), "nk": cache, "nv": cache}
    if kind == "TensorScatter":
        inputs["q"] = outputs["y"] = (FLOAT, [1, 4, 1, 16])
    integer = onnx.TensorProto.INT32 if kind == "GroupQueryAttention" else onnx.TensorProto.INT64
    inputs["place"] = (integer, [1])
    if kind == "GroupQueryAttention":
        attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
        operands = ["q", "k", "v", "pk", "pv", "place", "total", "cos", "sin"]
        angles = floats(8, 8)
        nodes = [make(kind, operands, ["y", "nk", "nv"], domain="com.microsoft", **attributes)]
        weights = {"total": np.array(8, np.int32), "cos": np.cos(angles), "sin": np.sin(angles)}
    else:
        nodes = [
            make("Reshape", ["k", "heads"], ["hk"]),
            make("Reshape", ["v", "heads"], ["hv"]),
            make("TensorScatter", ["pk", "hk", "place"], ["nk"], mode="circular"),
            make("TensorScatter", ["pv", "hv", "place"], ["nv"], mode="circular"),
            make("Attention", ["q", "nk", "nv"], ["y"]),
        ]
        weights = {"heads": np.array([1, 2, 1, 16])}
    return onnx_model(nodes, inputs, outputs, weights), {"pk": "nk", "pv": "nv"}


@pytest.mark.parametrize("kind", ["GroupQueryAttention", "TensorScatter"])
def test_a_decoder_writes_a_row_where_the_others_are(kind):
    model, states = decoder(kind)
    library = tvm_rammer.build(model, states=states, **BUILD)
    assert [state.in_place for state in library.description.states] == [True, True]
    kept = {name: np.zeros((1, 2, 8, 16), "float32") for name in states}
    if kind == "TensorScatter":
        reference = ReferenceEvaluator(model)
        run, places = (lambda given: reference.run(None, given)), (0, 1, 2, 9, 7)
    else:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(model.SerializeToString())
        run, places = (lambda given: session.run(None, given)), range(5)
    instance = library.create()
    for seed, place in enumerate(places):
        given = {
            "q": floats(1, 1, 64, seed=seed).reshape(library.description.inputs[0].shape),
            "k": floats(1, 1, 32, seed=seed + 50),
            "v": floats(1, 1, 32, seed=seed + 90),
            "place": np.array([place], "int64" if kind == "TensorScatter" else "int32"),
        }
        want, *left = run(given | kept)
        kept = dict(zip(states, left, strict=True))
        instance.run(**given)
        np.testing.assert_allclose(instance.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)
        for name, value in kept.items():
            np.testing.assert_allclose(instance.state[name].numpy(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"q": "hn"}, "states: there is no input 'q'; the model's inputs are 'h', 'x', 'c'"),
        (
            {"h": "q"},
            "states: there is no output 'q'; the model's outputs are 'hn', 'y', 'cn', 'total'",
        ),
        (
            {"h": "y"},
            "states: input 'h' is float32 of shape (1, 16), and output 'y', which it becomes, is "
            "float32 of shape (1, 4); a state keeps its type and its shape, which is known",
        ),
        ("h=hn", "states is 'h=hn'; give a mapping of inputs to outputs, by name"),
    ],
)
def test_what_can_be_no_state(states, message):
    with pytest.raises(InputError) as caught:
        tvm_rammer.build(recurrent(), states=states)
    assert str(caught.value) == message


def test_something_is_returned():
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    with pytest.raises(InputError, match="states: every output becomes a state; leave one that"):
        tvm_rammer.build(builder.get(), states={"x": "output_0"})


def test_what_has_no_known_shape_is_no_state():
    x = relax.Var("x", relax.TensorType(ndim=1, dtype="float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    with pytest.raises(InputError, match="input 'x' is float32 of a dynamic shape"):
        tvm_rammer.build(builder.get(), states={"x": "output_0"})
