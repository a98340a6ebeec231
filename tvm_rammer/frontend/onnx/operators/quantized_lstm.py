"""DynamicQuantizeLSTM of com.microsoft: an LSTM whose products are of integers.

The inputs and the state are rounded to 8 bits where a product reads them; their scale multiplies
the sums. The weights become real numbers once; compiling finds their bytes again where that is
faster.
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode
from tvm_rammer.frontend.onnx.recurrent.node import QUANTIZED


def quantized_lstm(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """DynamicQuantizeLSTM: X, W, R, B, lengths, states, P, then scales and zero points of W, R."""
    x, w, r = node.inputs[:3]
    operands = [
        x,
        _real(node, nodes, w, node.inputs[8], node.input(9)),
        _real(node, nodes, r, node.inputs[10], node.input(11)),
        *(node.input(number) for number in range(3, 8)),
    ]
    attributes = {**node.attributes, QUANTIZED: 1}
    return nodes.ops("LSTM", *operands, count=3, **attributes)


def _real(node: OperatorNode, nodes: Nodes, weights: str, scale: str, zero_point: str) -> str:
    """Weights [directions, inputs, gates] as real numbers [directions, gates, inputs]."""
    directions, _, _ = node.shape(weights)

    def along(value: str) -> str:
        return nodes.reshape(nodes.cast(value, np.float32), directions, 1, -1)

    value = nodes.cast(weights, np.float32)
    if zero_point and not node.is_zero(zero_point):
        value = nodes.op("Sub", value, along(zero_point))
    return nodes.op("Transpose", nodes.op("Mul", value, along(scale)), perm=(0, 2, 1))
