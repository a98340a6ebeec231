"""What ONNX Runtime computes of a model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx

from tvm_rammer.errors import RammerError


def run_onnxruntime(
    model: onnx.ModelProto | str | Path, inputs: Mapping[str, np.ndarray], threads: int = 2
) -> list[np.ndarray]:
    """Every output of a model, in order, as ONNX Runtime computes it.

    Raises
    ------
    RammerError
        ONNX Runtime is not installed.
    """
    try:
        onnxruntime = import_module("onnxruntime")
    except ModuleNotFoundError as error:
        raise RammerError(
            'onnxruntime is not installed; pip install "tvm-rammer[bench]"'
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Without VNNI it adds pairs of 8-bit products in 16 bits, which overflow, unless told not to.
    options.add_session_config_entry("session.x64quantprecision", "1")
    # What meets weights of few bits is rounded as well, unless it is to be left as it is.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(inputs))]
