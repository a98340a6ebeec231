"""Reference runs: seeded inputs, and how far two answers are apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tvm_rammer.errors import InputError
from tvm_rammer.tensors import random_values


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded inputs of a model: standard normal floats, small integers, fair coins.

    Raises
    ------
    InputError
        An input has a dimension without a value.
    """
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        info.name: random_values(rng, _shape(info), _dtype(info))
        for info in model.graph.input
        if info.name not in weights
    }


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Norm of the difference over the norm of what was wanted; NaN anywhere in ``got`` is infinite.

    Where all of ``want`` is zero it is the norm of the difference alone.
    """
    if got.shape != want.shape:
        raise InputError(f"cannot compare shape {got.shape} with {want.shape}")
    difference = np.linalg.norm(got.astype(np.float64).ravel() - want.astype(np.float64).ravel())
    scale = np.linalg.norm(want.astype(np.float64).ravel())
    error = float(difference / scale if scale else difference)
    return error if np.isfinite(error) else float("inf")


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    dims = info.type.tensor_type.shape.dim
    for axis, dim in enumerate(dims):
        if not dim.HasField("dim_value"):
            label = dim.dim_param or "?"
            raise InputError(
                f"input {info.name!r} has the dynamic dimension {label!r} on axis {axis};"
                " give it a value first"
            )
    return tuple(dim.dim_value for dim in dims)


def _dtype(info: onnx.ValueInfoProto) -> np.dtype[Any]:
    return helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
