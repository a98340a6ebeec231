"""An architecture as files: ONNX, a program of ``torch.export``, inputs, and what eager gives."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from corpus.entries import Architecture

#: File names in an architecture's folder.
ONNX, PROGRAM, EAGER = "model.onnx", "model.pt2", "eager.npz"
ONNX_INPUTS, PROGRAM_INPUTS = "onnx_inputs.npz", "torch_inputs.npz"
_FAILED = "failed.json"


def definition(architecture: Architecture) -> str:
    """A digest of what decides an export: where it is defined, and the libraries' versions."""
    versions = [metadata.version(name) for name in ("torch", architecture.library)]
    source = Path(__file__).with_name(f"{architecture.make.partition(':')[0]}.py").read_text()
    parts = [*versions, repr(architecture), source]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def made(architecture: Architecture) -> tuple[Any, tuple[Any, ...]]:
    """The module and its example inputs, by PyTorch's random numbers."""
    import torch

    module_name, _, function = architecture.make.partition(":")
    make = getattr(import_module(f"corpus.{module_name}"), function)
    found = make(**architecture.arguments)
    if not architecture.inputs:
        module, inputs = found
        return module, inputs
    inputs = tuple(getattr(torch, kind)(*given) for kind, *given in architecture.inputs)
    return found, inputs


def write_files(architecture: Architecture, folder: Path) -> dict[str, str]:
    """Write an architecture's files into a folder.

    Returns
    -------
    dict of str to str
        By form, why it has no file; forms that have one are missing.
    """
    import torch
    from torch.utils import _pytree

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, inputs = made(architecture)
    module.eval()
    with torch.no_grad():
        outputs = [v for v in _pytree.tree_leaves(module(*inputs)) if torch.is_tensor(v)]
    np.savez(folder / EAGER, *(value.detach().numpy() for value in outputs))
    failed: dict[str, str] = {}
    for form, write in (("torch", _write_program), ("onnx", _write_onnx)):
        if form not in architecture.forms:
            continue
        try:
            with torch.no_grad():
                write(module, inputs, folder)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            failed[form] = f"{type(error).__name__}: {lines[0]}"
    return failed


def note_failures(folder: Path, failed: Mapping[str, str]) -> None:
    """Keep what :func:`write_files` returned beside its files."""
    (folder / _FAILED).write_text(json.dumps(dict(failed)))


def failures(folder: Path) -> dict[str, str] | None:
    """Why forms have no file, by form; None where nothing was exported yet."""
    path = folder / _FAILED
    return dict(json.loads(path.read_text())) if path.exists() else None


def _write_program(module: Any, inputs: tuple[Any, ...], folder: Path) -> None:
    import torch

    program = torch.export.export(module, inputs, strict=False)
    torch.export.save(program, folder / PROGRAM)
    names = program.graph_signature.user_inputs
    arrays = [value.numpy() for value in inputs]
    np.savez(folder / PROGRAM_INPUTS, **dict(zip(names, arrays, strict=True)))


def _write_onnx(module: Any, inputs: tuple[Any, ...], folder: Path) -> None:
    import torch

    path, names = folder / ONNX, [f"input_{number}" for number in range(len(inputs))]
    try:
        torch.onnx.export(
            module, inputs, path, input_names=names, dynamo=True, external_data=False, verbose=False
        )
    except Exception:
        # The older exporter takes some models that the newer one does not.
        torch.onnx.export(module, inputs, path, input_names=names, dynamo=False)
    # An input that the model does not use is gone.
    kept = {info.name for info in onnx.load(str(path)).graph.input}
    arrays = {n: v.numpy() for n, v in zip(names, inputs, strict=True) if n in kept}
    np.savez(folder / ONNX_INPUTS, **arrays)
