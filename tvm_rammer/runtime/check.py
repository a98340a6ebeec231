"""Compares a compiled library with what the model computes in ONNX Runtime, or in PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tvm_rammer.errors import InputError, ModelError
from tvm_rammer.frontend.input_constants import Constants, as_numbers
from tvm_rammer.frontend.input_states import States
from tvm_rammer.frontend.loaded_model import one_line
from tvm_rammer.frontend.onnx.fix_inputs import typed_constants
from tvm_rammer.region.library_content import Interface, TensorInfo, shapes_text
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.tensors import random_values

#: Largest error of an output, relative to its largest value; for types of few digits a few of
#: their steps.
_TOLERANCE, _STEPS = 1e-3, 8
#: The same where data were rounded that the model does not round.
_OF_ROUNDED = 5e-2
#: Integers are drawn below the first of these that the model takes: they may be indices.
_INTEGERS_BELOW = (8, 2, 1)
#: Sizes that each run decides are the first of these that the model takes.
_OPEN_SIZES = (6, 64, 224, 1)


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
    shapes : str
        Of which inputs, where a library is for several shapes.
    """

    name: str
    error: float
    tolerance: float
    shapes: str = ""

    @property
    def place(self) -> str:
        """The same as a part of a sentence."""
        return f" with {self.shapes}" if self.shapes else ""


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
    library: Library,
    model: Any,
    constants: Constants | None = None,
    states: States | None = None,
) -> tuple[OutputError, ...]:
    """Run a library and the model that it was compiled from on the same seeded inputs.

    A library for several shapes is run with each of them, from the states of a new instance; where
    each run decides sizes, they are small ones. Floats are standard normal, bytes are those of
    images, integers are small, masks are ones.

    Parameters
    ----------
    library : Library
        For this machine.
    model : path, onnx.ModelProto or torch.export.ExportedProgram
    constants, states : mapping, optional
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
    several = len(library.description.interfaces) > 1
    least = _OF_ROUNDED if library.description.round_data else _TOLERANCE
    errors: list[OutputError] = []
    for interface in library.description.interfaces:
        known = _Reference(reference, model, constants or {}, states or {}, interface)
        inputs, expected = known.results()
        instance = library.create()
        outputs = instance(*inputs.values())
        found = [tensor.numpy() for tensor in (*outputs, *instance.state.values())]
        names = [info.name for info in interface.outputs] + list(instance.state)
        shapes = shapes_text(interface) if several else ""
        errors += [
            OutputError(name, _error(got, want), _tolerance(want, least), shapes)
            for name, got, want in zip(names, found, expected, strict=True)
        ]
    if wrong := [each for each in errors if not each.error <= each.tolerance]:
        worst = max(wrong, key=lambda each: each.error)
        raise ModelError(
            f"check: output {worst.name!r}{worst.place} differs from {reference}'s by "
            f"{worst.error:.2g} of its largest value (allowed: {worst.tolerance:.2g}); please "
            "report it with the model"
        )
    return tuple(errors)


@dataclass(frozen=True)
class _Reference:
    """A model in the program that it is compared with, ONNX Runtime or PyTorch."""

    program: str
    model: Any
    constants: Constants
    states: States
    described: Interface

    def results(self) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Inputs that the program takes; its outputs, and what becomes of the states."""
        run = self._torch if self.program == "PyTorch" else self._onnx
        zeros = {
            state.tensor.name: np.zeros(state.tensor.static_shape(), state.tensor.dtype)
            for state in self.described.states
            if state.tensor.name in self.states
        }
        for size, below in product(self._open_sizes(), _INTEGERS_BELOW):
            rng = np.random.default_rng(0)
            infos = [info.with_sizes(size) for info in self.described.inputs]
            inputs = {info.name: drawn(info, rng, below) for info in infos}
            try:
                found = run(inputs | zeros)
            except Exception as error:
                failure = error
                continue
            kept = (self.states.get(s.tensor.name, s.tensor.name) for s in self.described.states)
            names = [*(info.name for info in self.described.outputs), *kept]
            return inputs, [found[name] for name in names]
        raise InputError(
            f"check: {self.program} does not run the model: {one_line(failure)}"
        ) from failure

    def _open_sizes(self) -> list[dict[str, int]]:
        """What the sizes may be that each run decides; nothing, once, where there are none."""
        shapes = [info.shape or () for info in self.described.inputs]
        names = {size for shape in shapes for size in shape if isinstance(size, str)}
        return [dict.fromkeys(names, size) for size in _OPEN_SIZES] if names else [{}]

    def _onnx(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        proto = self.model
        if not isinstance(proto, onnx.ModelProto):
            proto = onnx.load(os.fspath(proto), load_external_data=False)
        known = {value.name: value for value in proto.graph.input}
        fixed = typed_constants(known, self.constants, "check") if self.constants else {}
        names = [value.name for value in proto.graph.output]
        return dict(zip(names, run_onnxruntime(self.model, {**inputs, **fixed}), strict=True))

    def _torch(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs and states by name, of a program whose states are then as they were."""
        import torch
        from torch.utils import _pytree as pytree

        from tvm_rammer.frontend.torch.size_guards import without_guards

        model = self.model
        program = torch.export.load(model) if isinstance(model, str | os.PathLike) else model
        leaves, tree = pytree.tree_flatten(program.example_inputs)
        given = {**inputs, **{name: as_numbers(value) for name, value in self.constants.items()}}
        for number, name in enumerate(program.graph_signature.user_inputs):
            if isinstance(leaves[number], torch.Tensor):
                # A copy: the program may write to it. NumPy has no bfloat16 that PyTorch reads.
                short = str(given[name].dtype) == "bfloat16"
                array = np.array(given[name], np.float32 if short else None)
                leaves[number] = torch.from_numpy(array).to(leaves[number].dtype)
        arguments, keywords = pytree.tree_unflatten(leaves, tree)
        tensors = {**program.constants, **program.state_dict}
        own = [s.tensor.name for s in self.described.states if s.tensor.name not in self.states]
        before = {name: tensors[name].clone() for name in own}
        free, _ = without_guards(program)
        with torch.no_grad():
            results = pytree.tree_leaves(free.module()(*arguments, **keywords))
            found = [each.clone() for each in results if isinstance(each, torch.Tensor)]
            left = {name: _array(tensors[name].clone()) for name in own}
            for name, value in before.items():
                tensors[name].copy_(value)
        values = list(map(_array, found))
        return {**dict(zip(self._torch_names(program), values, strict=True)), **left}

    def _torch_names(self, program: Any) -> list[str]:
        """What the library calls a program's outputs, in order."""
        if not self.states:
            return [info.name for info in self.described.outputs]
        from tvm_rammer.frontend.load import load_model

        infos = (*self.described.inputs, *(state.tensor for state in self.described.states))
        shapes = {info.name: info.static_shape() for info in infos}
        own = program.graph_signature.user_inputs
        return [*load_model(program, {k: v for k, v in shapes.items() if k in own}).output_names]


def drawn(info: TensorInfo, rng: np.random.Generator, below: int) -> np.ndarray:
    """Values that an input of such a type and name may have."""
    shape, dtype = info.static_shape(), np.dtype(info.dtype)
    if "mask" in info.name.lower():
        return np.ones(shape, dtype)
    return random_values(rng, shape, dtype, 256 if dtype == np.uint8 else below)


def _array(tensor: Any) -> np.ndarray:
    """A tensor of PyTorch's, which makes no array of bfloat16 itself."""
    if str(tensor.dtype) == "torch.bfloat16":
        return np.asarray(tensor.float().numpy(), np.dtype("bfloat16"))
    return np.asarray(tensor.numpy())


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


def _tolerance(want: np.ndarray, least: float) -> float:
    if str(want.dtype) == "bfloat16":
        return max(least, _STEPS * 2.0**-7)
    if want.dtype.kind != "f":
        # Quantised values may fall to either side of a tie; indices and truth values may not.
        quantised = want.dtype.kind in "iu" and want.dtype.itemsize == 1 and want.size
        return 1 / max(1, int(np.abs(want.astype(np.int64)).max())) if quantised else 0.0
    return max(least, _STEPS * float(np.finfo(want.dtype).eps))
