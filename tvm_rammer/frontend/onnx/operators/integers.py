"""Products and convolutions of integers: exact sums of 32 bits, then one rounding.

A quantised result is ``saturate(round_half_to_even(sum * scale) + zero_point)`` with the factor
``a_scale * b_scale / y_scale`` in float32, as ONNX Runtime computes it.
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes, scale_and_point
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def conv_integer(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """ConvInteger: a convolution of x - x_zero_point and w - w_zero_point."""
    x, w = node.inputs[:2]
    rank = len(node.shape(w))
    data = widened(node, nodes, x, node.input(2), 0, rank)
    weights = widened(node, nodes, w, node.input(3), 0, rank)
    return (nodes.op("Conv", data, weights, **node.attributes),)


def qlinear_conv(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """QLinearConv: the sums of ConvInteger and the bias, rounded to the scale of the result."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    rank = len(node.shape(w))
    attributes = dict(node.attributes)
    last = attributes.pop("channels_last", 0)
    if last:
        x = nodes.op("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
    sums = nodes.op("ConvInteger", x, w, x_zero, w_zero, **attributes)
    if node.input(8):
        sums = nodes.op("Add", sums, along(node, nodes, node.input(8), 1, rank))
    scale = nodes.op("Div", nodes.op("Mul", x_scale, w_scale), y_scale)
    if node.shape(w_scale) not in ((), (1,)):
        scale = nodes.reshape(scale, -1, *[1] * (rank - 2))
    result = requantized(node, nodes, sums, scale, y_zero)
    return (nodes.op("Transpose", result, perm=(0, *range(2, rank), 1)) if last else result,)


def qlinear_matmul(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """QLinearMatMul: the sums of MatMulInteger, rounded to the scale of the result."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs[:8]
    sums = nodes.op(
        "MatMul",
        widened(node, nodes, a, a_zero, -2, len(node.shape(a))),
        widened(node, nodes, b, b_zero, -1, len(node.shape(b))),
    )
    left = along(node, nodes, a_scale, -2, len(node.shape(a)))
    right = along(node, nodes, b_scale, -1, len(node.shape(b)))
    scale = nodes.op("Div", nodes.op("Mul", left, right), y_scale)
    if node.dtype(a_scale) != np.float32:
        scale = nodes.cast(scale, np.float32)
    return (requantized(node, nodes, sums, scale, y_zero),)


def matmul_integer(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """MatMulInteger: zero points for the whole, for rows of A, for columns of B."""
    a, b = node.inputs[:2]
    left = widened(node, nodes, a, node.input(2), -2, len(node.shape(a)))
    right = widened(node, nodes, b, node.input(3), -1, len(node.shape(b)))
    return (nodes.op("MatMul", left, right),)


def matmul_integer_to_float(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.MatMulIntegerToFloat: scales and a bias behind the sums."""
    a, b, a_scale, b_scale = node.inputs[:4]
    sums = nodes.op("MatMulInteger", a, b, node.input(4), node.input(5))
    return (_scaled(nodes, sums, nodes.op("Mul", a_scale, b_scale), node.input(6)),)


def dynamic_quantize_matmul(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.DynamicQuantizeMatMul: A is quantised by its own range."""
    a, b, b_scale = node.inputs[:3]
    quantized, a_scale, a_zero = nodes.ops("DynamicQuantizeLinear", a, count=3)
    sums = nodes.op("MatMulInteger", quantized, b, a_zero, node.input(3))
    return (_scaled(nodes, sums, nodes.op("Mul", a_scale, b_scale), node.input(4)),)


def qgemm(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.QGemm: alpha * A * B + C of integers; without a scale the result is float."""
    a, a_scale, a_zero, b, b_scale, b_zero = node.inputs[:6]
    left = widened(node, nodes, a, a_zero, -2, 2)
    columns_axis = 0 if node.attributes.get("transB", 0) else 1
    right = widened(node, nodes, b, b_zero, columns_axis, 2)
    if node.attributes.get("transA", 0):
        left = nodes.op("Transpose", left, perm=(1, 0))
    if node.attributes.get("transB", 0):
        right = nodes.op("Transpose", right, perm=(1, 0))
    sums = nodes.op("MatMul", left, right)
    if node.input(6):
        sums = nodes.op("Add", sums, node.input(6))
    alpha = nodes.constant(node.attributes.get("alpha", 1.0), np.float32)
    scale = nodes.op("Mul", alpha, nodes.op("Mul", a_scale, b_scale))
    if not node.input(7):
        return (_scaled(nodes, sums, scale, ""),)
    return (requantized(node, nodes, sums, nodes.op("Div", scale, node.input(7)), node.input(8)),)


def dynamic_quantize_linear(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """DynamicQuantizeLinear: the range of the data and 0 on 0 to 255."""
    (x,) = node.inputs
    zero, last = (nodes.constant(number, np.float32) for number in (0, 255))
    scale, point = scale_and_point(nodes, x, zero, last)
    zero_point = nodes.cast(point, np.uint8)
    return nodes.op("QuantizeLinear", x, scale, zero_point), scale, zero_point


def widened(
    node: OperatorNode, nodes: Nodes, value: str, zero_point: str, axis: int, rank: int
) -> str:
    """A tensor of integers without its zero point, as int32."""
    wide = nodes.cast(value, np.int32)
    if node.is_zero(zero_point):
        return wide
    return nodes.op("Sub", wide, nodes.cast(along(node, nodes, zero_point, axis, rank), np.int32))


def along(node: OperatorNode, nodes: Nodes, value: str, axis: int, rank: int) -> str:
    """A scalar, or a vector along an axis of a tensor of some rank, so that it broadcasts."""
    shape = node.shape(value)
    if len(shape) != 1:
        return value
    if shape == (1,):
        return nodes.reshape(value)
    sizes = [1] * rank
    sizes[axis] = shape[0]
    return nodes.reshape(value, *sizes)


def requantized(node: OperatorNode, nodes: Nodes, sums: str, scale: str, zero_point: str) -> str:
    """Sums of int32 in steps of another scale."""
    steps = nodes.op("Mul", nodes.cast(sums, np.float32), scale)
    one = nodes.constant(1, np.float32)
    if zero_point and node.shape(zero_point):
        zero_point = nodes.reshape(zero_point)
    return nodes.op("QuantizeLinear", steps, one, *([zero_point] if zero_point else []))


def _scaled(nodes: Nodes, sums: str, scale: str, bias: str) -> str:
    result = nodes.op("Mul", nodes.cast(sums, np.float32), scale)
    return nodes.op("Add", result, bias) if bias else result
