"""Resize to sizes, or of sizes, that only the run tells computes what ONNX Runtime's does."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_values import model_of, tensor

import tvm_rammer
from tvm_rammer.errors import ModelError

N = helper.make_node
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 5, 7)).astype("float32")


def compare(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    module = tvm_rammer.build(model, "llvm", policy="sequential").create()
    for feed in feeds:
        (want,) = session.run(None, feed)
        (got,) = module(*feed.values())
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def resized(**attributes):
    node = N("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    rank = len(attributes.get("axes", X.shape))
    return model_of(
        [node], [tensor("x", X.shape), tensor("sizes", [rank], INT)], [tensor("y", None)]
    )


@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_that_are_data(mode, coordinates):
    model = resized(mode=mode, coordinate_transformation_mode=coordinates)
    sizes = [(2, 3, 9, 11), (2, 3, 5, 7), (2, 3, 2, 4), (2, 3, 1, 1)]
    compare(model, [{"x": X, "sizes": np.array(each)} for each in sizes])


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_some_axes_and_every_rounding(rounding):
    model = resized(axes=[3, 2], mode="nearest", nearest_mode=rounding)
    compare(model, [{"x": X, "sizes": np.array(each)} for each in ((14, 15), (3, 2))])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_as_many_images_as_the_run_finds(mode):
    nodes = [
        N("NonZero", ["which"], ["found"]),
        N("Reshape", ["found", "flat"], ["places"]),
        N("Gather", ["x", "places"], ["some"]),
        N("Resize", ["some", "", "scales"], ["y"], mode=mode),
    ]
    model = model_of(
        nodes,
        [tensor("x", X.shape), tensor("which", [2])],
        [tensor("y", None)],
        flat=np.array([-1]),
        scales=np.float32([1, 1, 2, 1.5]),
    )
    compare(model, [{"x": X, "which": np.float32(each)} for each in ([1, 1], [0, 1])])


def test_of_nothing_zeros_are_made():
    """ONNX forbids it; foreign memory is not read."""
    nodes = [
        N("NonZero", ["which"], ["found"]),
        N("Cast", ["found"], ["row"], to=FLOAT),
        N("Resize", ["row", "", "", "sizes"], ["y"], mode="linear"),
    ]
    model = model_of(nodes, [tensor("which", [5])], [tensor("y", None)], sizes=np.array([1, 4]))
    module = tvm_rammer.build(model, "llvm").create()
    (found,) = module(np.zeros(5, "float32"))
    np.testing.assert_array_equal(found.numpy(), np.zeros((1, 4)))
    (found,) = module(np.float32([0, 0, 3, 0, 0]))
    np.testing.assert_array_equal(found.numpy(), np.full((1, 4), 2))


def test_integers_are_weighed_as_floats():
    node = N("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
    inputs = [tensor("x", [1, 1, 4, 4], TensorProto.UINT8), tensor("sizes", [4], INT)]
    model = model_of([node], inputs, [tensor("y", None, dtype=TensorProto.UINT8)])
    x = RNG.integers(0, 255, (1, 1, 4, 4)).astype("uint8")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feed = {"x": x, "sizes": np.array([1, 1, 7, 8])}
    (got,) = tvm_rammer.build(model, "llvm").create()(*feed.values())
    (want,) = session.run(None, feed)
    np.testing.assert_allclose(got.numpy().astype(int), want.astype(int), atol=1)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"mode": "linear", "antialias": 1}, "its size is known only at run time"),
        ({"coordinate_transformation_mode": "half_pixel_symmetric"}, "its size is known only"),
    ],
)
def test_what_needs_all_sizes_before_the_run_is_refused(attributes, what):
    with pytest.raises(ModelError, match=f"Resize \\(node 'y'\\) cannot be compiled: {what}"):
        tvm_rammer.build(resized(**attributes), "llvm")
