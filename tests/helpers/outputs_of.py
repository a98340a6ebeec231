"""What a library computes on drawn inputs."""

from __future__ import annotations

import numpy as np

from tvm_rammer.runtime.library import Library


def outputs(library: Library) -> list[np.ndarray]:
    """The outputs on the same inputs each time."""
    module = library.create()
    random = np.random.default_rng(0)
    shapes, dtypes = module.get_input_info()
    values = [random.standard_normal(s).astype(dtypes[name]) for name, s in shapes.items()]
    return [tensor.numpy() for tensor in module(*values)]
