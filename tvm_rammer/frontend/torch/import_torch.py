"""Programs of ``torch.export``: read and imported."""

from __future__ import annotations

import io
import re
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

from tvm_rammer.errors import ModelError, RammerError
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.input_shapes import Shapes
from tvm_rammer.frontend.loaded_model import LoadedModel, one_line
from tvm_rammer.frontend.relax_module import from_relax

_OPERATOR = re.compile(rb"torch\.ops\.(\w+)\.")
#: Modules that make operators known to PyTorch, by the names that those begin with.
_DEFINING = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao",
    "torchvision": "torchvision",
}


def read_pt2(path: Path) -> Any:
    """Read a program that ``torch.export.save`` wrote."""
    data = path.read_bytes()
    try:
        import torch
    except ImportError as error:
        raise ModelError(f"{path}: needs PyTorch to be read: pip install torch") from error
    try:
        for family in _families(data) & _DEFINING.keys():
            import_module(_DEFINING[family])
        return torch.export.load(io.BytesIO(data))
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{path}: needs the module {error.name!r} to be read, which has operators or kinds of "
            "tensors of the program; install it"
        ) from error
    except Exception as error:
        raise ModelError(
            f"{path}: not a program saved by torch.export.save, or damaged ({one_line(error)}); "
            "save it again"
        ) from error


def _families(data: bytes) -> set[str]:
    """What the names of a saved program's operators begin with."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return set()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        graphs = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    return {name.decode() for graph in graphs for name in _OPERATOR.findall(graph)}


def from_torch(program: Any, shapes: Shapes, constants: Constants, where: str) -> LoadedModel:
    """Import a ``torch.export.ExportedProgram``; constants decide sizes, and stay inputs."""
    from tvm_rammer.frontend.torch.carried_state import pass_state_on
    from tvm_rammer.frontend.torch.exported_program import output_names, prepared
    from tvm_rammer.frontend.torch.importer import imported
    from tvm_rammer.frontend.torch.random_definitions import draw_by_state

    try:
        program, open_sizes = prepared(program, shapes, constants, where)
        names = output_names(program)
        states = (*pass_state_on(program), *draw_by_state(program))
        module = imported(program, where, open_sizes)
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
