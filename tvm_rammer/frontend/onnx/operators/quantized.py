"""Operators on quantised tensors that are another operator between two changes of scale.

Each element is taken to its real value, computed on in float32, and rounded to the steps of the
result: what ONNX Runtime's tables and kernels of com.microsoft give, but for ties.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode, Rule


def unary(kind: str, *names: str) -> Rule:
    """X, X_scale, X_zero_point, Y_scale, Y_zero_point, with the named attributes passed on."""

    def rule(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
        attributes = {name: node.attributes[name] for name in names if name in node.attributes}
        return _of_real(node, nodes, lambda real: nodes.op(kind, real, **attributes))

    return rule


def binary(kind: str) -> Rule:
    """A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point."""

    def rule(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
        a, a_scale, a_zero, b, b_scale, b_zero, c_scale = node.inputs[:7]
        real = nodes.op(kind, _real(nodes, a, a_scale, a_zero), _real(nodes, b, b_scale, b_zero))
        return (_steps(node, nodes, real, c_scale, node.input(7), a),)

    return rule


def global_average_pool(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.QLinearGlobalAveragePool, with the channels at either end."""
    x = node.inputs[0]
    rank = len(node.shape(x))
    last = node.attributes.get("channels_last", 0)
    axes = range(1, rank - 1) if last else range(2, rank)
    return _of_real(
        node, nodes, lambda real: nodes.reduce("ReduceMean", real, tuple(axes), keepdims=True)
    )


def average_pool(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.QLinearAveragePool."""
    attributes = dict(node.attributes)
    if attributes.pop("channels_last", 0):
        raise node.refusal("its channels are last")
    return _of_real(node, nodes, lambda real: nodes.op("AveragePool", real, **attributes))


def softmax(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.QLinearSoftmax; before version 13 of ONNX it is over all axes from one on."""
    x = node.inputs[0]
    rank = len(node.shape(x))
    axis = node.attributes.get("axis", -1) % rank
    if node.attributes.get("opset", node.version) < 13 and axis != rank - 1:
        shape = node.shape(x)
        rows = int(np.prod(shape[:axis]))

        def over_all(real: str) -> str:
            flat = nodes.op("Softmax", nodes.reshape(real, rows, -1), axis=-1)
            return nodes.reshape(flat, *shape)

        return _of_real(node, nodes, over_all)
    return _of_real(node, nodes, lambda real: nodes.op("Softmax", real, axis=axis))


def concat(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.QLinearConcat: Y_scale, Y_zero_point, then X, X_scale, X_zero_point, again."""
    y_scale, y_zero, *parts = node.inputs
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    real = nodes.op(
        "Concat", *(_real(nodes, *triple) for triple in triples), axis=node.attributes["axis"]
    )
    return (_steps(node, nodes, real, y_scale, y_zero, parts[0]),)


def blocked(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """QuantizeLinear and DequantizeLinear whose scale is one for every so many elements."""
    x, scale = node.inputs[:2]
    if node.dtype(x).name in ("int2", "uint2", "int4", "uint4"):
        raise node.refusal("elements of less than 8 bits are known only at run time")
    size = node.attributes.get("block_size", 0)
    if not size:
        return None
    shape = node.shape(x)
    axis = node.attributes.get("axis", 1) % len(shape)
    names = [name for name in node.inputs if name]
    known = [found for name in names if (found := node.value(name)) is not None]
    if node.kind == "DequantizeLinear" and len(known) == len(names):
        return (nodes.constant(_weights(*known, axis=axis, size=size), node.dtype(scale)),)
    scales = _repeated(node, nodes, scale, axis, size, shape[axis])
    point = node.input(2)
    points = _repeated(node, nodes, point, axis, size, shape[axis]) if point else ""
    real = node.dtype(scale)
    if node.kind == "DequantizeLinear":
        return (_in_numbers(nodes, x, scales, points, real),)
    given = node.attributes.get("output_dtype", 0) or onnx.TensorProto.UINT8
    dtype = node.dtype(point) if point else onnx.helper.tensor_dtype_to_np_dtype(given)
    if dtype.name not in ("uint8", "int8", "uint16", "int16"):
        raise node.refusal(f"blocks of {dtype.name} are not supported")
    return (_in_steps(nodes, x, scales, points, real, dtype),)


def contributed(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """QuantizeLinear and DequantizeLinear of com.microsoft, whose steps may have 16 bits."""
    x, scale = node.inputs[:2]
    point, real = node.input(2), node.dtype(scale)
    back = node.kind == "DequantizeLinear"
    dtype = node.dtype(x if back else point) if back or point else np.dtype(np.uint8)
    if dtype.itemsize == 1:
        return (nodes.op(node.kind, *filter(None, node.inputs), **node.attributes),)
    rank, many = len(node.shape(x)), len(node.shape(scale)) == 1 and node.shape(scale) != (1,)
    if many:
        shape = [1] * rank
        shape[node.attributes.get("axis", 1) % rank] = -1
        scale = nodes.reshape(scale, *shape)
        point = point and nodes.reshape(point, *shape)
    if back:
        return (_in_numbers(nodes, x, scale, point, real),)
    return (_in_steps(nodes, x, scale, point, real, dtype),)


def _in_numbers(nodes: Nodes, steps: str, scale: str, point: str, real: np.dtype) -> str:
    value = nodes.cast(steps, real)
    if point:
        value = nodes.op("Sub", value, nodes.cast(point, real))
    return nodes.op("Mul", value, scale)


def _in_steps(
    nodes: Nodes, value: str, scale: str, point: str, real: np.dtype, dtype: np.dtype
) -> str:
    limits = np.iinfo(dtype)
    steps = nodes.op("Round", nodes.op("Div", value, scale))
    if point:
        steps = nodes.op("Add", steps, nodes.cast(point, real))
    steps = nodes.op("Max", steps, nodes.constant(limits.min, real))
    return nodes.cast(nodes.op("Min", steps, nodes.constant(limits.max, real)), dtype)


def _weights(
    integers: np.ndarray,
    scale: np.ndarray,
    point: np.ndarray | None = None,
    *,
    axis: int,
    size: int,
) -> np.ndarray:
    """The real values of constants, without one copy for each step."""
    real = integers.astype(scale.dtype)
    for number in range(scale.shape[axis]):
        block = [slice(None)] * real.ndim
        block[axis] = slice(number * size, (number + 1) * size)
        part, shared = real[tuple(block)], [*block[:axis], slice(number, number + 1)]
        if point is not None:
            part -= point[tuple(shared)].astype(scale.dtype)
        part *= scale[tuple(shared)]
    return real


def _repeated(
    node: OperatorNode, nodes: Nodes, value: str, axis: int, count: int, size: int
) -> str:
    """Each part along an axis so many times, up to a size."""
    where = np.arange(size) // count
    return nodes.op("Gather", value, nodes.constant(where, np.int64), axis=axis)


def _of_real(node: OperatorNode, nodes: Nodes, compute: Callable[[str], str]) -> tuple[str, ...]:
    x, x_scale, x_zero, y_scale = node.inputs[:4]
    real = compute(_real(nodes, x, x_scale, x_zero))
    return (_steps(node, nodes, real, y_scale, node.input(4), x),)


def _real(nodes: Nodes, value: str, scale: str, zero_point: str) -> str:
    return nodes.op("DequantizeLinear", value, scale, *([zero_point] if zero_point else []))


def _steps(
    node: OperatorNode, nodes: Nodes, real: str, scale: str, zero_point: str, like: str
) -> str:
    point = zero_point or nodes.constant(0, node.dtype(like))
    return nodes.op("QuantizeLinear", real, scale, point)
