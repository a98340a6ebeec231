"""Libraries of this project as contenders: on PyTorch's tensors, and on a decoder."""

from __future__ import annotations

import numpy as np

import tvm_rammer
from tvm_rammer.testing.contenders import Prepared


def library(path: str, inputs: str) -> Prepared:
    """Run a library that was made of a program of torch.export."""
    import torch

    model = tvm_rammer.load(path).create()
    for name, value in zip(model.get_input_info()[0], torch.load(inputs), strict=True):
        model.set_input(name, value)

    def outputs() -> list[np.ndarray]:
        tensors = map(torch.from_dlpack, map(model.get_output, range(model.get_num_outputs())))
        return [tensor.float().numpy() for tensor in tensors]

    return model.run, outputs


def decoder_library(path: str, inputs: str) -> Prepared:
    """Run a library, with the inputs that are none of its states."""
    model = tvm_rammer.load(path).create()
    with np.load(inputs) as saved:
        for name in model.get_input_info()[0]:
            model.set_input(name, saved[name])
    return model.run, lambda: [model.get_output("result").numpy()]
