"""Compares a compiled library with what the model computes in ONNX Runtime, or in PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tvm_rammer.errors import InputError, ModelError
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.loaded_model import one_line
from tvm_rammer.frontend.onnx.fix_inputs import typed_constants
from tvm_rammer.region.library_content import TensorInfo
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.tensors import random_values

#: Largest error of an output, relative to its largest value; for types of few digits a few of
#: their steps.
_TOLERANCE, _STEPS = 1e-3, 8
#: Integers are drawn below the first of these that the model takes: they may be indices.
_INTEGERS_BELOW = (8, 2, 1)


@dataclass(frozen=True)
class OutputError:
    """How far an output is from what it should be.

    Attributes
    ----------
    name : str
    error : float
        The largest difference, relative to the largest value.
    tolerance : float
        What is allowed.
    """

    name: str
    error: float
    tolerance: float


def require_reference(model: Any) -> str:
    """What a model can be compared with: ``"ONNX Runtime"`` or ``"PyTorch"``.

    Raises
    ------
    InputError
        It is not installed, or there is none for such a model.
    """
    suffix = Path(model).suffix if isinstance(model, str | os.PathLike) else None
    if suffix == ".pt2" or type(model).__name__ == "ExportedProgram":
        return "PyTorch"
    if suffix == ".json" or not (suffix is not None or isinstance(model, onnx.ModelProto)):
        raise InputError(
            "check: a Relax module cannot be compared with anything else; "
            "check the model that it was made of"
        )
    if find_spec("onnxruntime") is None:
        raise InputError("check: compares with ONNX Runtime: pip install onnxruntime")
    return "ONNX Runtime"


def check_library(
    library: Library, model: Any, constants: Constants | None = None
) -> tuple[OutputError, ...]:
    """Run a library and the model that it was compiled from on the same seeded inputs.

    Floats are standard normal, bytes are those of images, integers are small, masks are ones.

    Parameters
    ----------
    library : Library
        For this machine.
    model : path, onnx.ModelProto or torch.export.ExportedProgram
    constants : mapping of str to array_like, optional
        As for :func:`tvm_rammer.build`.

    Returns
    -------
    tuple of OutputError

    Raises
    ------
    ModelError
        An output differs by more than its tolerance.
    InputError
        There is nothing to compare with.
    """
    reference = require_reference(model)
    described = library.description
    infos, states = described.inputs, [state.tensor.name for state in described.states]
    inputs, expected = _reference_run(reference, model, infos, constants or {}, states)
    found = [output.numpy() for output in library.create()(*inputs.values())]
    names = [info.name for info in library.description.outputs]
    errors = tuple(
        OutputError(name, _error(got, want), _tolerance(want))
        for name, got, want in zip(names, found, expected, strict=True)
    )
    if wrong := [each for each in errors if not each.error <= each.tolerance]:
        worst = max(wrong, key=lambda each: each.error)
        raise ModelError(
            f"check: output {worst.name!r} differs from {reference}'s by {worst.error:.2g} of its "
            f"largest value (allowed: {worst.tolerance:.2g}); please report it with the model"
        )
    return errors


def _reference_run(
    reference: str,
    model: Any,
    infos: Sequence[TensorInfo],
    constants: Constants,
    states: Sequence[str],
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs that the reference takes, and its outputs."""
    for below in _INTEGERS_BELOW:
        rng = np.random.default_rng(0)
        inputs = {info.name: _drawn(info, rng, below) for info in infos}
        try:
            if reference == "PyTorch":
                return inputs, _run_torch(model, inputs, constants, states)
            return inputs, run_onnxruntime(model, inputs | _fixed(model, constants))
        except Exception as error:
            failure = error
    raise InputError(f"check: {reference} does not run the model: {one_line(failure)}") from failure


def _drawn(info: TensorInfo, rng: np.random.Generator, below: int) -> np.ndarray:
    """Values that an input of such a type and name may have."""
    shape, dtype = info.static_shape(), np.dtype(info.dtype)
    if "mask" in info.name.lower():
        return np.ones(shape, dtype)
    return random_values(rng, shape, dtype, 256 if dtype == np.uint8 else below)


def _fixed(model: Any, constants: Constants) -> dict[str, np.ndarray]:
    if not constants:
        return {}
    proto = model
    if not isinstance(model, onnx.ModelProto):
        proto = onnx.load(os.fspath(model), load_external_data=False)
    inputs = {value.name: value for value in proto.graph.input}
    return typed_constants(inputs, constants, "check")


def _run_torch(
    model: Any, inputs: Mapping[str, np.ndarray], constants: Constants, states: Sequence[str]
) -> list[np.ndarray]:
    """Outputs of an exported program, run eagerly, whose states are then as they were."""
    import torch
    from torch.utils import _pytree as pytree

    program = torch.export.load(model) if isinstance(model, str | os.PathLike) else model
    leaves, tree = pytree.tree_flatten(program.example_inputs)
    names = list(program.graph_signature.user_inputs)
    given = dict(inputs) | {name: np.asarray(value) for name, value in constants.items()}
    for number, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if isinstance(leaf, torch.Tensor):
            leaves[number] = torch.from_numpy(given[name]).to(leaf.dtype)
    arguments, keywords = pytree.tree_unflatten(leaves, tree)
    tensors = {**program.constants, **program.state_dict}
    before = [(tensors[name], tensors[name].clone()) for name in states]
    with torch.no_grad():
        results = pytree.tree_leaves(program.module()(*arguments, **keywords))
        found = [each.clone().numpy() for each in results if isinstance(each, torch.Tensor)]
        for each, value in before:
            each.copy_(value)
    return found


def _error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference relative to the largest value; what is not finite must be the same."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return np.inf
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    difference = np.abs(got[finite] - want[finite]).max()
    scale = np.abs(want[finite]).max()
    if difference == 0 or scale == 0:
        return float(difference)
    return float(difference / scale)


def _tolerance(want: np.ndarray) -> float:
    if want.dtype.kind != "f":
        # Quantised values may fall to either side of a tie; indices and truth values may not.
        quantised = want.dtype.kind in "iu" and want.dtype.itemsize == 1 and want.size
        return 1 / max(1, int(np.abs(want.astype(np.int64)).max())) if quantised else 0.0
    return max(_TOLERANCE, _STEPS * float(np.finfo(want.dtype).eps))
