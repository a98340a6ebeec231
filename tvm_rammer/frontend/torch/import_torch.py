"""Programs of ``torch.export``: read and imported."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.input_shapes import Shapes, static_shapes
from tvm_rammer.frontend.loaded_model import LoadedModel, one_line
from tvm_rammer.frontend.relax_module import from_relax, relax_inputs, specialise


def read_pt2(path: Path) -> Any:
    """Read a program that ``torch.export.save`` wrote."""
    data = path.read_bytes()
    try:
        import torch
    except ImportError as error:
        raise ModelError(f"{path}: needs PyTorch to be read: pip install torch") from error
    try:
        return torch.export.load(io.BytesIO(data))
    except Exception as error:
        raise ModelError(
            f"{path}: not a program saved by torch.export.save, or damaged ({one_line(error)}); "
            "save it again"
        ) from error


def from_torch(program: Any, shapes: Shapes, where: str) -> LoadedModel:
    """Import a ``torch.export.ExportedProgram``."""
    from tvm.relax.frontend.torch import from_exported_program

    try:
        module = from_exported_program(program)
    except Exception as error:
        raise ModelError(
            f"{where}: TVM cannot import the exported program: {one_line(error)}"
        ) from error
    loaded = specialise(from_relax(module, where), shapes, where)
    static_shapes(relax_inputs(loaded), {}, where)
    outputs = tuple(map(str, program.graph_signature.user_outputs))
    known = len(outputs) == len(loaded.output_names)
    return replace(loaded, output_names=outputs) if known else loaded
