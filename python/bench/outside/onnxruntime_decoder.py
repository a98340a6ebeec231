"""ONNX Runtime on a decoder, with one buffer for what it takes and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

import numpy as np


def onnxruntime_decoder(
    model: str, inputs: str, states: Mapping[str, str], threads: int
) -> tuple[Callable[[], object], Callable[[], list[np.ndarray]]]:
    """Tensors bound: its GroupQueryAttention writes one row of a buffer, and copies nothing."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    with np.load(inputs) as saved:
        for name in saved.files:
            value = runtime.OrtValue.ortvalue_from_numpy(saved[name])
            binding.bind_ortvalue_input(name, value)
            if name in states:
                binding.bind_ortvalue_output(states[name], value)
    (left,) = {each.name for each in session.get_outputs()} - set(states.values())
    binding.bind_output(left, "cpu")
    # In the order in which they were bound.
    outputs = binding.copy_outputs_to_cpu
    return partial(session.run_with_iobinding, binding), lambda: outputs()[-1:]
