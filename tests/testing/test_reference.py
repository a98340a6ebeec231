from __future__ import annotations

import numpy as np
import pytest
from close import assert_outputs_close

from tvm_rammer.errors import InputError
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models.mlp import mlp
from tvm_rammer.testing.reference import random_inputs, relative_error


def test_the_same_seed_gives_the_same_inputs_and_another_gives_others() -> None:
    model = mlp()
    first, again, other = (random_inputs(model, seed)["x"] for seed in (1, 1, 2))
    assert first.shape == (1, 16) and first.dtype == np.float32
    assert (first == again).all() and (first != other).any()


def test_a_dynamic_dimension_is_refused() -> None:
    model = mlp()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(InputError) as error:
        random_inputs(model)
    assert str(error.value) == (
        "input 'x' has the dynamic dimension 'batch' on axis 0; give it a value first"
    )


def test_onnxruntime_computes_an_mlp_like_numpy() -> None:
    pytest.importorskip("onnxruntime")
    from onnx import numpy_helper

    model = mlp()
    inputs = random_inputs(model)
    w0, b0, w1, b1 = (numpy_helper.to_array(t) for t in model.graph.initializer)
    want = np.maximum(inputs["x"] @ w0 + b0, 0) @ w1 + b1
    assert_outputs_close(run_onnxruntime(model, inputs, threads=1), [want], 1e-6)


def test_relative_error_is_the_norm_of_the_difference_over_the_norm() -> None:
    want = np.array([3.0, 4.0])
    assert relative_error(want, want) == 0
    assert relative_error(np.array([3.0, 4.5]), want) == pytest.approx(0.1)
    assert relative_error(np.array([0.5]), np.array([0.0])) == 0.5
    assert relative_error(np.array([np.nan, 4.0]), want) == float("inf")


def test_shapes_that_differ_cannot_be_compared() -> None:
    with pytest.raises(InputError) as error:
        relative_error(np.ones(2), np.ones((2, 1)))
    assert str(error.value) == "cannot compare shape (2,) with (2, 1)"


def test_a_failed_comparison_names_the_output_and_the_worst_element() -> None:
    with pytest.raises(AssertionError) as error:
        assert_outputs_close([np.array([[1.0, 2.5]])], [np.array([[1.0, 2.0]])], names=["logits"])
    assert str(error.value) == (
        "logits: relative error 0.224 > 0.0001; worst at [0, 1]: got 2.5, expected 2"
    )
