"""Operators of com.microsoft that are several of ONNX's in one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

#: The parameters of an activation, in the order in which ``activation_params`` has them.
_PARAMETERS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "ThresholdedRelu": ("alpha",),
    "Elu": ("alpha",),
}
_OWN = ("activation", "activation_params", "activation_alpha", "activation_beta")


def fused_conv(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """FusedConv: Conv, the sum with another tensor, an activation."""
    attributes = {key: value for key, value in node.attributes.items() if key not in _OWN}
    result = nodes.op("Conv", *filter(None, node.inputs[:3]), **attributes)
    if node.input(3):
        result = nodes.op("Add", result, node.input(3))
    params = list(node.attributes.get("activation_params", ()))
    return (_activated(node, nodes, result, params),)


def fused_gemm(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """FusedGemm: Gemm and an activation."""
    attributes = {key: value for key, value in node.attributes.items() if key not in _OWN}
    result = nodes.op("Gemm", *filter(None, node.inputs[:3]), **attributes)
    keys = ("activation_alpha", "activation_beta")
    params = [node.attributes[key] for key in keys if key in node.attributes]
    return (_activated(node, nodes, result, params),)


def fused_matmul(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """FusedMatMul, TransposeMatMul: alpha * A * B, their last axes or their batch transposed."""
    a, b = node.inputs[:2]
    left = _transposed(node, nodes, a, "A")
    right = _transposed(node, nodes, b, "B")
    result = nodes.op("MatMul", left, right)
    alpha = node.attributes.get("alpha", 1.0)
    if alpha != 1:
        result = nodes.op("Mul", result, nodes.constant(alpha, node.dtype(a)))
    return (result,)


def quick_gelu(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """QuickGelu: x * sigmoid(alpha * x)."""
    (x,) = node.inputs
    alpha = nodes.constant(node.attributes.get("alpha", 1.702), node.dtype(x))
    return (nodes.op("Mul", x, nodes.op("Sigmoid", nodes.op("Mul", x, alpha))),)


def bias_add(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """BiasAdd: x + bias + skip."""
    x, bias, skip = node.inputs
    return (nodes.op("Add", nodes.op("Add", x, bias), skip),)


def bias_split_gelu(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """BiasSplitGelu: of x + bias the first half of a row times the Gelu of the second."""
    x, bias = node.inputs
    left, right = nodes.split(nodes.op("Add", x, bias), len(node.shape(x)) - 1, 2)
    half, one, root = (nodes.constant(v, node.dtype(x)) for v in (0.5, 1.0, 0.5**0.5))
    part = nodes.op("Add", nodes.op("Erf", nodes.op("Mul", right, root)), one)
    gelu = nodes.op("Mul", nodes.op("Mul", right, half), part)
    return (nodes.op("Mul", left, gelu),)


def swish(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """Swish: x * sigmoid(alpha * x)."""
    (x,) = node.inputs
    alpha = node.attributes.get("alpha", 1.0)
    inner = x if alpha == 1 else nodes.op("Mul", x, nodes.constant(alpha, node.dtype(x)))
    return (nodes.op("Mul", x, nodes.op("Sigmoid", inner)),)


def _activated(node: OperatorNode, nodes: Nodes, value: str, params: list[float]) -> str:
    kind = node.text("activation", "")
    if not kind:
        return value
    if kind == "Clip" and len(params) == 2:
        low, high = (nodes.constant(number, np.float32) for number in params)
        return nodes.op("Min", nodes.op("Max", value, low), high)
    if kind not in _PARAMETERS:
        raise node.refusal(f"its activation {kind!r} is not known")
    attributes: dict[str, Any] = dict(zip(_PARAMETERS[kind], params, strict=False))
    return nodes.op(kind, value, **attributes)


def _transposed(node: OperatorNode, nodes: Nodes, value: str, operand: str) -> str:
    axes = list(range(len(node.shape(value))))
    if node.attributes.get(f"transBatch{operand}", 0):
        # The first axis goes behind the other axes of the batch.
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if node.attributes.get(f"trans{operand}", 0) and len(axes) > 1:
        axes[-2:] = axes[:-3:-1]
    return value if axes == sorted(axes) else nodes.op("Transpose", value, perm=axes)
