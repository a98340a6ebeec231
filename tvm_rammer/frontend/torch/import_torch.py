"""Programs of ``torch.export``: read and imported."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tvm_rammer.errors import ModelError, RammerError
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.input_shapes import Shapes
from tvm_rammer.frontend.loaded_model import LoadedModel, one_line
from tvm_rammer.frontend.relax_module import from_relax


def read_pt2(path: Path) -> Any:
    """Read a program that ``torch.export.save`` wrote."""
    data = path.read_bytes()
    try:
        import torch
    except ImportError as error:
        raise ModelError(f"{path}: needs PyTorch to be read: pip install torch") from error
    try:
        try:
            return torch.export.load(io.BytesIO(data))
        except Exception:
            if find_spec("torchvision") is None:
                raise
            # PyTorch knows torchvision's operators once that is imported.
            import_module("torchvision")
            return torch.export.load(io.BytesIO(data))
    except Exception as error:
        raise ModelError(
            f"{path}: not a program saved by torch.export.save, or damaged ({one_line(error)}); "
            "save it again"
        ) from error


def from_torch(program: Any, shapes: Shapes, constants: Constants, where: str) -> LoadedModel:
    """Import a ``torch.export.ExportedProgram``; constants decide sizes, and stay inputs."""
    from tvm_rammer.frontend.torch.carried_state import pass_state_on
    from tvm_rammer.frontend.torch.exported_program import output_names, prepared
    from tvm_rammer.frontend.torch.importer import imported

    try:
        program = prepared(program, shapes, constants, where)
        names = output_names(program)
        states = pass_state_on(program)
        module = imported(program, where)
    except RammerError:
        raise
    except Exception as error:
        raise ModelError(
            f"{where}: the exported program cannot be imported: {one_line(error)}"
        ) from error
    loaded = from_relax(module, where)
    inputs, outputs = (
        given[: len(given) - len(states)] for given in (loaded.input_names, loaded.output_names)
    )
    outputs = names if len(names) == len(outputs) else outputs
    return LoadedModel(module, inputs, outputs, states)
