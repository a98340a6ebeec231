"""PyTorch as a contender that runs a program of torch.export, eager or by its compiler."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

import numpy as np

Prepared = tuple[Callable[[], object], Callable[[], list[np.ndarray]], Callable[[], dict[str, Any]]]


def program(model: str, inputs: str, threads: int, compiled: bool = False) -> Prepared:
    """A program from its file, on tensors from another."""
    torch = import_module("torch")
    torch.set_num_threads(threads)
    module = torch.export.load(model).module()
    values = torch.load(inputs)
    call = torch.compile(module) if compiled else module
    last: list[Any] = []

    def run() -> None:
        with torch.inference_mode():
            result = call(*values)
        last[:] = result if isinstance(result, list | tuple) else [result]

    if compiled:  # it compiles at the first call: that is set-up
        run()
    versions = {"versions": {"torch": metadata.version("torch")}}
    return run, lambda: [value.float().numpy() for value in last], lambda: versions
