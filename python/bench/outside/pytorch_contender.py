"""PyTorch as a contender: a module that onnx2torch makes of an ONNX file, or a program of
torch.export.

onnx2torch imports torchvision for two converters. Where that has no build for the PyTorch at hand,
``pip install --no-deps torchvision==0.15.2 pillow requests`` does: newer ones refuse to be imported
without their own operators.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

import numpy as np

Prepared = tuple[Callable[[], object], Callable[[], list[np.ndarray]], Callable[[], dict[str, Any]]]


def pytorch(model: str, inputs: str, threads: int, compiled: bool = False) -> Prepared:
    """A module made of an ONNX file, eager, or ``compiled`` by PyTorch's default compiler."""
    torch, onnx2torch = import_module("torch"), import_module("onnx2torch")
    torch.set_num_threads(threads)
    module = onnx2torch.convert(model).eval()
    with np.load(inputs) as saved:
        values = [torch.from_numpy(saved[name]) for name in saved.files]
    return _prepared(module, values, compiled, ("torch", "onnx2torch"))


def program(model: str, inputs: str, threads: int, compiled: bool = False) -> Prepared:
    """A program of torch.export from its file, on tensors from another; else as the above."""
    torch = import_module("torch")
    torch.set_num_threads(threads)
    module = torch.export.load(model).module()
    return _prepared(module, torch.load(inputs), compiled, ("torch",))


def _prepared(module: Any, values: Any, compiled: bool, packages: tuple[str, ...]) -> Prepared:
    torch = import_module("torch")
    call = torch.compile(module) if compiled else module
    last: list[Any] = []

    def run() -> None:
        with torch.inference_mode():
            result = call(*values)
        last[:] = result if isinstance(result, list | tuple) else [result]

    def outputs() -> list[np.ndarray]:
        # NumPy has no bfloat16.
        wide = (value.float() if value.dtype == torch.bfloat16 else value for value in last)
        return [value.numpy() for value in wide]

    if compiled:  # it compiles at the first call: that is set-up
        run()
    versions = {name: metadata.version(name) for name in packages}
    return run, outputs, lambda: {"versions": versions}
