"""A library of this project as a contender that gets PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def library(path: str, inputs: str) -> tuple[Callable[[], object], Callable[[], list[np.ndarray]]]:
    """Run a library that was made of a program of torch.export."""
    import torch

    import tvm_rammer

    model = tvm_rammer.load(path).create()
    for name, value in zip(model.get_input_info()[0], torch.load(inputs), strict=True):
        model.set_input(name, value)

    def outputs() -> list[np.ndarray]:
        tensors = map(torch.from_dlpack, map(model.get_output, range(model.get_num_outputs())))
        return [tensor.float().numpy() for tensor in tensors]

    return model.run, outputs
