"""A library of this project as a contender on a decoder."""

from __future__ import annotations

import numpy as np

import tvm_rammer
from tvm_rammer.testing.contenders import Prepared


def decoder_library(path: str, inputs: str) -> Prepared:
    """Run a library, with the inputs that are none of its states."""
    model = tvm_rammer.load(path).create()
    with np.load(inputs) as saved:
        for name in model.get_input_info()[0]:
            model.set_input(name, saved[name])
    return model.run, lambda: [model.get_output("result").numpy()]
