"""Nodes and types as messages call them."""

from __future__ import annotations

import onnx

from tvm_rammer.frontend.input_shapes import show


def describe(node: onnx.NodeProto) -> str:
    """Its operator and its name, or what it computes where it has none."""
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    if not all(part.isidentifier() for part in operator.split(".")):
        operator = repr(operator)
    return f"{operator} (node {node.name or ', '.join(node.output)!r})"


def describe_type(kind: onnx.TypeProto) -> str:
    """Dtype and shape of a tensor."""
    tensor = kind.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return f"{dtype} {show(None)}"
    sizes = (
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in tensor.shape.dim
    )
    return f"{dtype} {show(sizes)}"
