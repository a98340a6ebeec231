"""PyTorch as a contender, its module made of the ONNX file by onnx2torch.

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
    """PyTorch eager, or ``compiled`` by its default compiler."""
    torch, onnx2torch = import_module("torch"), import_module("onnx2torch")
    torch.set_num_threads(threads)
    module = onnx2torch.convert(model).eval()
    with np.load(inputs) as saved:
        values = [torch.from_numpy(saved[name]) for name in saved.files]
    call = torch.compile(module) if compiled else module
    last: list[Any] = []

    def run() -> None:
        with torch.inference_mode():
            result = call(*values)
        last[:] = result if isinstance(result, list | tuple) else [result]

    if compiled:  # it compiles at the first call: that is set-up
        run()
    versions = {name: metadata.version(name) for name in ("torch", "onnx2torch")}
    return run, lambda: [value.numpy() for value in last], lambda: {"versions": versions}
