"""MelWeightMatrix is a constant, of any size, as ONNX's reference computes it."""

from __future__ import annotations

import numpy as np
import pytest
from one_operator import compiled, one_operator, reference
from onnx import TensorProto, helper

from tvm_rammer import load_model
from tvm_rammer.errors import ModelError

CONSTANTS = range(5)


def operands(
    bands: int, length: int, rate: int, low: float, high: float, dtype: str = "float32"
) -> list[np.ndarray]:
    sizes = (np.array(value, "int64") for value in (bands, length, rate))
    return [*sizes, *(np.array(value, dtype) for value in (low, high))]


@pytest.mark.parametrize(
    "given",
    [
        (8, 16, 8192, 0, 4096),
        (40, 257, 16000, 20, 7600),
        # Larger than what is computed with shapes.
        (80, 1024, 16000, 0, 8000),
        (128, 2048, 44100, 0, 22050, "float64"),
        (20, 64, 8000, 100, 100),
        (80, 1024, 16000, 4000, 100),
    ],
)
@pytest.mark.parametrize("kind", [None, TensorProto.DOUBLE, TensorProto.INT32])
def test_weights(given, kind):
    inputs = operands(*given)
    attributes = {} if kind is None else {"output_datatype": kind}
    model = one_operator("MelWeightMatrix", inputs, constants=CONSTANTS, **attributes)
    (expected,) = reference(model, {})
    (found,) = compiled(model, {})
    assert found.dtype == helper.tensor_dtype_to_np_dtype(kind or TensorProto.FLOAT)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((8, 16, 8192, 0, 8192), "its bands reach to 8192.0 Hz, beyond the 9 frequencies"),
        ((80, 1024, 16000, -100, 100), "its bands reach from -100.0 to 100.0 Hz"),
        ((0, 16, 8192, 0, 100), "it has 0 bands of 16 samples at 8192 Hz"),
    ],
)
def test_bands_that_there_are_not(given, reason):
    model = one_operator("MelWeightMatrix", operands(*given), constants=CONSTANTS)
    with pytest.raises(ModelError, match=rf"MelWeightMatrix \(node 'node'\).*{reason}"):
        load_model(model)


def test_a_number_of_bands_that_is_an_input():
    inputs = operands(8, 16, 8192, 0, 4096)
    with pytest.raises(ModelError, match="its number of bands is known only at run time; fix"):
        load_model(one_operator("MelWeightMatrix", inputs, constants=CONSTANTS[1:]))
