"""Models of 16-bit floats compute in float32; what goes in and comes out keeps its type."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from one_operator import compiled
from onnx import TensorProto, helper, numpy_helper

from tvm_rammer.frontend.onnx.half_floats import compute_in_float32

N = helper.make_node
HALF = TensorProto.FLOAT16
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 300)).astype("float16")


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array((0.1 * RNG.standard_normal(shape)).astype("float16"), name)


def model_of(*nodes, outputs, weights=(), inputs=(("x", HALF, (4, 300)),)) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)


def test_long_sums_are_kept_in_float32():
    """Products of 300 and of 20,000: sums kept in float16 would be off by some percent."""
    model = model_of(
        N("MatMul", ["x", "w"], ["wide"]),
        N("Relu", ["wide"], ["positive"]),
        N("ReduceSum", ["positive"], ["sum"], keepdims=0),
        outputs=[("positive", HALF), ("sum", HALF)],
        weights=[weight("w", 300, 5000)],
    )
    got, want = compiled(model, {"x": X}), expected(model, {"x": X})
    w = numpy_helper.to_array(model.graph.initializer[0]).astype("float64")
    exact = np.maximum(X.astype("float64") @ w, 0)
    assert [each.dtype for each in got] == ["float16", "float16"] == [each.dtype for each in want]
    assert np.abs(got[0] - exact).max() <= 2**-11 * exact.max()
    np.testing.assert_allclose(got[1], exact.sum(), rtol=2**-10)


def test_branches_constants_and_outputs_that_are_inputs_or_weights():
    branch = [
        helper.make_graph(
            [N(kind, ["twice", *other], [kind])],
            kind,
            [],
            [helper.make_tensor_value_info(kind, HALF, (4, 300))],
            [weight("e", 1)] if other else [],
        )
        for kind, other in (("Neg", []), ("Add", ["e"]))
    ]
    two = numpy_helper.from_array(np.array([2], "float16"))
    model = model_of(
        N("Constant", [], ["two"], value=two),
        N("Mul", ["x", "two"], ["twice"]),
        N("If", ["which"], ["r"], then_branch=branch[0], else_branch=branch[1]),
        outputs=[("r", HALF), ("x", HALF), ("b", HALF)],
        weights=[weight("b", 3)],
        inputs=(("x", HALF, (4, 300)), ("which", TensorProto.BOOL, ())),
    )
    for which in (True, False):
        feed = {"x": X, "which": np.array(which)}
        for got, want in zip(compiled(model, feed), expected(model, feed), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


def test_a_cast_to_float16_rounds():
    model = model_of(
        N("Cast", ["x"], ["half"], to=HALF),
        N("Cast", ["half"], ["y"], to=TensorProto.FLOAT),
        outputs=[("y", TensorProto.FLOAT)],
        inputs=(("x", TensorProto.FLOAT, (1000,)),),
    )
    feed = {"x": RNG.standard_normal(1000).astype("float32")}
    np.testing.assert_array_equal(compiled(model, feed)[0], feed["x"].astype("float16"))


def test_a_cast_to_bfloat16_rounds():
    """To the nearest of 8 bits, to the even one of two; what is too large becomes infinite."""
    model = model_of(
        N("Cast", ["x"], ["half"], to=TensorProto.BFLOAT16),
        N("Cast", ["half"], ["y"], to=TensorProto.FLOAT),
        outputs=[("y", TensorProto.FLOAT)],
        inputs=(("x", TensorProto.FLOAT, (1014,)),),
    )
    ties = 1 + np.arange(1, 8) / 2**8
    special = [1e5, 1 / 3, 3.4e38, -np.inf, np.nan, 1e-39, 0]
    values = np.concatenate([ties, special, RNG.standard_normal(1000)]).astype("float32")
    feed = {"x": values}
    np.testing.assert_array_equal(compiled(model, feed)[0], expected(model, feed)[0])


@pytest.mark.parametrize("kind", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_of_float16(kind):
    model = model_of(
        N(kind, ["size"], ["window"], output_datatype=HALF),
        N("Mul", ["x", "window"], ["y"]),
        outputs=[("y", HALF)],
        weights=[numpy_helper.from_array(np.array(300), "size")],
    )
    (got,), (want,) = compiled(model, {"x": X}), expected(model, {"x": X})
    np.testing.assert_allclose(got, want, 2**-9, 1e-3)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_nothing_but_the_border_is_of_16_bits(kind):
    value = helper.make_tensor("w", kind, (2, 2), [1.0, 2.0, 3.0, 4.0])
    model = model_of(
        N("MatMul", ["x", "w"], ["y"]),
        outputs=[("y", kind)],
        weights=[value],
        inputs=(("x", kind, (2, 2)),),
    )
    assert compute_in_float32(model)
    graph = model.graph
    assert [node.op_type for node in graph.node] == ["Cast", "MatMul", "Cast"]
    np.testing.assert_array_equal(
        numpy_helper.to_array(graph.initializer[0]), np.array([[1, 2], [3, 4]], "float32")
    )
    assert [v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)] == [kind, kind]


def test_a_model_without_them_stays_as_it_is():
    model = model_of(
        N("Neg", ["x"], ["y"]),
        outputs=[("y", TensorProto.FLOAT)],
        inputs=(("x", TensorProto.FLOAT, (2,)),),
    )
    before = model.SerializeToString()
    assert not compute_in_float32(model)
    assert model.SerializeToString() == before


def test_an_output_without_a_type_has_the_one_that_follows():
    model = model_of(
        N("CastLike", ["x", "like"], ["cast"]),
        N("Mul", ["cast", "cast"], ["y"]),
        outputs=[("y", HALF)],
        weights=[numpy_helper.from_array(np.array([1], np.float16), "like")],
        inputs=(("x", TensorProto.FLOAT, X.shape),),
    )
    wide = X.astype("float32") * 1.0001
    model.graph.output[0].ClearField("type")
    (got,) = compiled(model, {"x": wide})
    rounded = wide.astype(np.float16).astype(np.float32)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, (rounded * rounded).astype(np.float16))
