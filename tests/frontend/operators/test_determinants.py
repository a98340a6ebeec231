"""Det of matrices of any size, singular ones too, is what numpy says in doubles."""

from __future__ import annotations

import numpy as np
import pytest
from one_operator import compiled, one_operator
from onnx import TensorProto, helper

import tvm_rammer

RNG = np.random.default_rng(0)


def determinants(x: np.ndarray) -> np.ndarray:
    (found,) = compiled(one_operator("Det", [x]), {"x0": x})
    assert (found.shape, found.dtype) == (x.shape[:-2], x.dtype)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2, 2), (2, 3, 5, 5), (2, 33, 33), (64, 64)])
def test_determinants_of_random_matrices(shape, dtype):
    x = (RNG.standard_normal(shape) / np.sqrt(shape[-1]) * 2).astype(dtype)
    exact = np.linalg.det(x.astype("float64"))
    np.testing.assert_allclose(determinants(x), exact, rtol=1e-6 if dtype == "float32" else 1e-10)


def test_singular_matrices():
    """Two equal rows, a column of zeros, nothing but zeros, and a last pivot of 0."""
    x = RNG.integers(-4, 5, (4, 6, 6)).astype("float32")
    x[0, 4] = x[0, 1]
    x[1, :, 2] = 0
    x[2] = 0
    x[3, 5] = x[3, :5].sum(0)
    np.testing.assert_allclose(determinants(x), 0, atol=1e-9)


def test_rows_that_have_to_change_places():
    """Permutations are 1 or -1, with zeros where the first pivots are wanted."""
    x = np.stack([np.eye(7, dtype="float32")[RNG.permutation(7)] for _ in range(8)])
    found = determinants(x)
    np.testing.assert_array_equal(found, np.round(np.linalg.det(x)))
    assert {-1.0, 1.0} == set(found.tolist())


def test_a_number_that_is_none_makes_none_of_the_result():
    x = np.zeros((3, 4, 4), "float32") + np.eye(4, dtype="float32")
    x[0, 0, 0] = x[1, 3, 0] = x[2, 2, 3] = np.nan
    assert np.isnan(determinants(x)[:2]).all()


def test_products_that_float32_holds_in_the_end():
    x = np.diag([1e30, 1e30, 1e-30, 1e-30]).astype("float32")
    np.testing.assert_allclose(determinants(x), 1, rtol=1e-6)


def test_matrices_without_rows_have_the_product_of_nothing():
    (found,) = compiled(one_operator("Det", [np.zeros((2, 0, 0), "float32")]), {})
    assert found.tolist() == [1, 1]


def test_as_many_matrices_as_the_run_finds():
    """Those of which a flag is true."""
    nodes = [
        helper.make_node("Compress", ["x", "flags"], ["some"], axis=0),
        helper.make_node("Det", ["some"], ["y"]),
    ]
    tensor = helper.make_tensor_value_info
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "graph",
        [tensor("x", floats, (5, 3, 3)), tensor("flags", TensorProto.BOOL, (5,))],
        [tensor("y", floats, ("some",))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    x = RNG.standard_normal((5, 3, 3)).astype("float32")
    instance = tvm_rammer.build(model, "llvm", policy="sequential").create()
    for flags in ([1, 0, 0, 1, 1], [0, 1, 0, 0, 0]):
        kept = np.array(flags, bool)
        (found,) = instance(x, kept)
        np.testing.assert_allclose(found.numpy(), np.linalg.det(x[kept]), rtol=1e-5, atol=1e-6)
