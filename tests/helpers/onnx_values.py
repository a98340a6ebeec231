"""Values of ONNX graphs, and models of a few nodes, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tensor(name: str, shape: object, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or an output; sizes that are texts are symbolic, and ``None`` is any shape."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    **weights: Any,
) -> onnx.ModelProto:
    """A model of operators of version 18."""
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
