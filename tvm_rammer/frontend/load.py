"""Tells what a model is, reads it, and has it imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import tvm

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.input_shapes import Shapes, require_mapping
from tvm_rammer.frontend.input_states import States, keep_states, require_states
from tvm_rammer.frontend.loaded_model import LoadedModel
from tvm_rammer.frontend.onnx.import_onnx import from_onnx, read_onnx
from tvm_rammer.frontend.onnx.onnx_file import OnnxModel, in_memory
from tvm_rammer.frontend.relax_module import (
    bind_constants,
    from_relax,
    read_json,
    specialise,
)
from tvm_rammer.frontend.torch.import_torch import from_torch, read_pt2
from tvm_rammer.no_collection import no_collection
from tvm_rammer.one_at_a_time import one_at_a_time


@one_at_a_time
@no_collection()
def load_model(
    model: Any,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    states: States | None = None,
) -> LoadedModel:
    """Load a model.

    Parameters
    ----------
    model : path, onnx.ModelProto, torch.export.ExportedProgram, tvm.IRModule or LoadedModel
        A file is ONNX, or a module saved by ``tvm.ir.save_json`` (``.json``), or a program saved
        by ``torch.export.save`` (``.pt2``). Only a module may keep symbolic dimensions unasked.
    shapes : mapping of str to sequence of int or str, optional
        Shapes of inputs, by their names in the model: sizes for its symbolic dimensions, or names
        of sizes that each run decides.
    constants : mapping of str to array_like, optional
        Values of inputs, by their names in the model; such an input is none any more.
    states : mapping of str to str, optional
        Names of outputs by the names of the inputs that they are in the next run.

    Returns
    -------
    LoadedModel

    Raises
    ------
    ModelError
        The model cannot be read or imported, or dimensions of its inputs stay unknown.
    InputError
        ``shapes``, ``constants`` or ``states`` do not fit the model.
    """
    shapes = {} if shapes is None else shapes
    constants = {} if constants is None else constants
    states = {} if states is None else states
    require_mapping(shapes)
    require_states(states)
    return keep_states(_loaded(model, shapes, constants, states), states)


def _loaded(model: Any, shapes: Shapes, constants: Constants, states: States) -> LoadedModel:
    """A model whose states are inputs and outputs."""
    where = "the model"
    if isinstance(model, str | os.PathLike):
        where = os.fspath(model)
        model = _read(Path(model))
    if isinstance(model, onnx.ModelProto):
        model = in_memory(model)
    if isinstance(model, OnnxModel):
        return from_onnx(model, shapes, constants, where, states)
    if isinstance(model, tvm.IRModule):
        model = from_relax(model, where)
    if isinstance(model, LoadedModel):
        return bind_constants(specialise(model, shapes, where), shapes, constants, where)
    if type(model).__name__ == "ExportedProgram":
        loaded = from_torch(model, shapes, constants, where)
        return bind_constants(loaded, shapes, constants, where)
    raise ModelError(
        f"a {type(model).__name__} is not a model: give a path, an onnx.ModelProto, "
        "a torch.export.ExportedProgram or a tvm.IRModule"
    )


def _read(path: Path) -> Any:
    reader = {".json": read_json, ".pt2": read_pt2}.get(path.suffix, read_onnx)
    try:
        return reader(path)
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file; give the path of a model") from error
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}; give a model file") from error
