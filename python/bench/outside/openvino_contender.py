"""OpenVINO as a contender."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np

Prepared = tuple[Callable[[], object], Callable[[], list[np.ndarray]]]


def openvino(model: str, inputs: str, threads: int) -> Prepared:
    """For latency, in float32, tensors bound."""
    runtime = import_module("openvino")
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = runtime.Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    with np.load(inputs) as saved:
        for name in saved.files:
            request.set_tensor(name, runtime.Tensor(saved[name]))

    def run() -> None:
        request.start_async()
        request.wait()

    return run, lambda: [request.get_tensor(port).data.copy() for port in compiled.outputs]
