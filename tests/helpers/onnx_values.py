"""Values of ONNX graphs, in few words."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper


def tensor(name: str, shape: object, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or an output; sizes that are texts are symbolic, and ``None`` is any shape."""
    return helper.make_tensor_value_info(name, dtype, shape)
