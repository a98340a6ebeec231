"""NumPy and TVM share tensors: the same elements, and the same memory where that is possible."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.tensors import as_array, as_tensor, compact, constant, empty

DTYPES = ("float32", "float64", "float16", "int8", "int64", "uint8", "bool")


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(DTYPES), st.integers(0, 3))
@settings(max_examples=60)
def test_the_elements_survive_in_any_layout(shape, dtype, turn):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    array = np.moveaxis(array, range(array.ndim), np.roll(range(array.ndim), turn))
    tensor = as_tensor(array)
    assert tensor.shape == array.shape
    assert str(tensor.dtype) == dtype
    np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(as_array(tensor), array)
    assert str(constant(array).ty.dtype) == dtype


@pytest.mark.parametrize("shape, order", [((640, 512), (1, 0)), ((64, 48, 3, 41), (2, 3, 1, 0))])
def test_large_arrays_are_transposed(shape, order):
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape).transpose(order)
    made = compact(array)
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, array)


def test_an_array_that_fits_is_not_copied():
    array = empty((3, 1, 5), "float32")
    tensor = as_tensor(array)
    array[...] = 7
    assert (tensor.numpy() == 7).all()
    assert np.shares_memory(as_array(tensor), array)


def test_what_does_not_fit_is_copied():
    array = empty((9,), "float32")
    array[...] = range(9)
    read_only = array[:4]
    read_only.flags.writeable = False
    for part in (array[1:], array[::2], read_only):
        made = compact(part)
        assert made.ctypes.data % 64 == 0
        assert not np.shares_memory(made, part)
        np.testing.assert_array_equal(as_tensor(part).numpy(), part)


def test_axes_of_one_element_get_ordinary_strides():
    array = np.lib.stride_tricks.as_strided(empty((8,), "float32"), (1, 8), (1000, 4))
    assert compact(array).strides == (32, 4)


def test_types_that_numpy_itself_does_not_know():
    array = np.array([1, -2.5], ml_dtypes.bfloat16)
    tensor = as_tensor(array)
    assert str(tensor.dtype) == "bfloat16"
    np.testing.assert_array_equal(as_array(tensor), array)
    assert isinstance(tensor, tvm.runtime.Tensor)
