"""ONNX Runtime as a contender."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np

Prepared = tuple[Callable[[], object], Callable[[], list[np.ndarray]]]


def onnxruntime(model: str, inputs: str, threads: int, parallel: bool = False) -> Prepared:
    """Tensors bound; ``parallel`` takes the inter-operator executor."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # As in the reference: without VNNI it would not compute what an 8-bit model says.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if parallel:  # threads for the operators' insides as well only get in each other's way
        options.execution_mode = runtime.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = threads
        options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    with np.load(inputs) as saved:
        for name in saved.files:
            binding.bind_cpu_input(name, saved[name])
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return partial(session.run_with_iobinding, binding), binding.copy_outputs_to_cpu
