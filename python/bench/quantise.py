"""Makes 8-bit networks of those with random weights, as ONNX Runtime's own tool does."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from tvm_rammer.errors import InputError

#: From this version on, weights may have a scale for each channel.
_OPSET = 13


def quantised(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A model between QuantizeLinear and DequantizeLinear: weights of int8, data of uint8.

    Parameters
    ----------
    model : ModelProto
    inputs : mapping of str to array
        Ranges of the data are those that these lead to.

    Raises
    ------
    InputError
        If the tool cannot quantise the model; it has no way with recurrent operators.
    """
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Once(CalibrationDataReader):
        """The inputs, and then nothing."""

        def __init__(self) -> None:
            self.left = [dict(inputs)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    version = max(_OPSET, *(each.version for each in model.opset_import if not each.domain))
    raised = onnx.version_converter.convert_version(model, version)
    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder) / "plain.onnx", Path(folder) / "made.onnx"
        _write_folded(raised, plain)
        # It says that models should be prepared, which is done.
        logging.disable(logging.WARNING)
        try:
            quantize_static(plain, made, Once(), per_channel=True)
        except Exception as error:
            name = model.graph.name or "a model"
            raise InputError(f"ONNX Runtime's tool cannot quantise {name}: {error}") from error
        finally:
            logging.disable(logging.NOTSET)
        return onnx.load(made)


def _write_folded(model: onnx.ModelProto, path: Path) -> None:
    """A model whose batch norms are part of its convolutions."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options)
