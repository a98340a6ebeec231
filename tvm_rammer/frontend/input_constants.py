"""Inputs that a user fixes to a value: what is given becomes an array of the input's own type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tvm_rammer.errors import InputError
from tvm_rammer.frontend.input_shapes import Dims, Shapes, show
from tvm_rammer.units import listed

#: What a user gives: values by the name of the input.
Constants = Mapping[str, Any]


def checked_constants(
    constants: Constants, names: Mapping[str, object], shapes: Shapes, where: str
) -> None:
    """Raise an InputError for a constant of no input, or of one that has a shape too."""
    if not isinstance(constants, Mapping):
        raise InputError(f"constants is {constants!r}; give a mapping of names to values")
    for name in constants:
        if name not in names:
            known = listed(map(repr, names))
            raise InputError(f"{where}: there is no input {name!r}; its inputs: {known}")
        if name in shapes:
            raise InputError(
                f"{where}: input {name!r} is given a shape and a constant; give one of them"
            )


def as_constant(name: str, value: Any, dtype: np.dtype, dims: Dims, where: str) -> np.ndarray:
    """A value as an array that fits an input.

    Parameters
    ----------
    name : str
        The input.
    value : array_like
        Of its shape; a single number fits every shape of one element.
    dtype : numpy.dtype
        The input's.
    dims : Dims
        The input's, where they are known.
    where : str
        The model, for messages.

    Raises
    ------
    InputError
        The value is no array of numbers, has another shape, or is none of the dtype.
    """
    try:
        given = as_numbers(value)
    except Exception as error:
        raise InputError(f"{where}: the constant {name!r} is no array of numbers") from error
    if given.dtype.kind not in "biuf":
        raise InputError(
            f"{where}: the constant {name!r} is {given.dtype}, not numbers; input {name!r} takes "
            f"{dtype}"
        )
    if given.size == 1 and dims is not None and all(_is_free(dim) or dim == 1 for dim in dims):
        given = given.reshape((1,) * len(dims))
    if dims is not None and not _fits(given.shape, dims):
        raise InputError(
            f"{where}: input {name!r} is {show(dims)} in the model; the constant's shape "
            f"{show(given.shape)} does not fit"
        )
    with np.errstate(all="ignore"):
        array = given.astype(dtype)
    if not _same(given, array):
        raise InputError(
            f"{where}: the constant {name!r} has values that are no {dtype}, as the input is; "
            "give values that are"
        )
    return array


def as_numbers(value: Any) -> np.ndarray:
    """Numbers as NumPy has them: it has no bfloat16, and takes no tensor that is trained."""
    if type(value).__module__.partition(".")[0] == "torch":
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    given = np.asarray(value)
    return given.astype(np.float32) if given.dtype.name == "bfloat16" else given


def _is_free(dim: int | str | None) -> bool:
    return not isinstance(dim, int)


def _fits(shape: tuple[int, ...], dims: tuple[int | str | None, ...]) -> bool:
    return len(shape) == len(dims) and all(
        _is_free(dim) or dim == size for dim, size in zip(dims, shape, strict=True)
    )


def _same(given: np.ndarray, array: np.ndarray) -> bool:
    """Whether no value was lost; that floats are rounded is what their dtype is for."""
    if given.dtype.kind == "f" and (array.dtype.kind == "f" or array.dtype.name == "bfloat16"):
        return bool((np.isfinite(array) == np.isfinite(given)).all())
    return bool((given == array).all())
