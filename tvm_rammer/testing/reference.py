"""Reference runs: seeded inputs, and how far two answers are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tvm_rammer.errors import InputError


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
        info.name: _random(rng, _shape(info), _dtype(info))
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


def assert_close(got: np.ndarray, want: Any, tolerance: float = 1e-5) -> None:
    """Assert the same shape, and numbers that are equal up to rounding.

    Integers and booleans must be equal. A sum of K products whose signs differ is off by about
    ``sqrt(K)`` units of rounding of its *terms*, however small it is itself; so what is allowed is
    relative to the largest finite value. The default is 84 of float32's units: K up to a few
    thousand, or as many roundings one after the other as in a short network.
    """
    want = np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want)
        return
    finite = want[np.isfinite(want)]
    scale = max(1.0, float(np.abs(finite).max(initial=0.0)))
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=0, atol=tolerance * scale
    )


def assert_outputs_close(
    got: Sequence[np.ndarray],
    want: Sequence[np.ndarray],
    tolerance: float = 1e-4,
    names: Sequence[str] | None = None,
) -> None:
    """Assert that outputs agree; the message names the output, the error and the worst element."""
    assert len(got) == len(want), f"{len(got)} outputs, expected {len(want)}"
    for index, (left, right) in enumerate(zip(got, want, strict=True)):
        name = names[index] if names else f"output {index}"
        assert left.shape == right.shape, f"{name}: shape {left.shape}, expected {right.shape}"
        error = relative_error(left, right)
        if error > tolerance:
            raise AssertionError(
                f"{name}: relative error {error:.3g} > {tolerance:.3g}; {_worst(left, right)}"
            )


def _worst(got: np.ndarray, want: np.ndarray) -> str:
    distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
    distance = np.where(np.isnan(distance), np.inf, distance)
    at = np.unravel_index(int(distance.argmax()), distance.shape)
    place = ", ".join(str(int(i)) for i in at)
    return f"worst at [{place}]: got {got[at]:.6g}, expected {want[at]:.6g}"


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


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0, 8, shape).astype(dtype)
