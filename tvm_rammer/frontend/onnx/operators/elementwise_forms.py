"""Elementwise operators with attributes or operands that TVM's importer takes otherwise."""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

#: Since this version of ONNX's operators operands are broadcast as numpy's are.
BROADCASTS_SINCE = 7


def is_inf(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """IsInf of one sign."""
    detected = {sign: node.attributes.get(f"detect_{sign}", 1) for sign in ("positive", "negative")}
    if all(detected.values()):
        return None
    (x,) = node.inputs
    if not any(detected.values()):
        return (nodes.op("And", nodes.op("IsInf", x), nodes.constant(False, np.bool_)),)
    zero = nodes.constant(0, node.dtype(x))
    sign = nodes.op("Greater" if detected["positive"] else "Less", x, zero)
    return (nodes.op("And", nodes.op("IsInf", x), sign),)


def bit_shift(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """BitShift: by the element's width or more nothing (or the sign) is left."""
    x, count = node.inputs
    dtype = node.dtype(x)
    bits = dtype.itemsize * 8
    inside = nodes.op("Less", count, nodes.constant(bits, dtype))
    if np.issubdtype(dtype, np.signedinteger):
        inside = nodes.op(
            "And", inside, nodes.op("Not", nodes.op("Less", count, nodes.constant(0, dtype)))
        )
    left = node.text("direction", "") == "LEFT"
    safe = nodes.op("Where", inside, count, nodes.constant(0 if left else bits - 1, dtype))
    shifted = nodes.op("BitShift", x, safe, direction=node.text("direction", ""))
    if left or np.issubdtype(dtype, np.unsignedinteger):
        return (nodes.op("Where", inside, shifted, nodes.constant(0, dtype)),)
    return (shifted,)


def old_broadcast(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Add and others before version 7: ``broadcast=1`` lays B along A from an axis on."""
    if node.version >= BROADCASTS_SINCE or not node.attributes.get("broadcast", 0):
        return None
    a, b = node.inputs
    sizes = node.shape(b)
    first = node.attributes.get("axis", len(node.shape(a)) - len(sizes))
    behind = len(node.shape(a)) - first - len(sizes)
    return (nodes.op(node.kind, a, nodes.reshape(b, *sizes, *[1] * behind)),)


def power(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Pow with an exponent of another type, and of integers: the result is of the base's type."""
    base, exponent = node.inputs
    dtype = node.dtype(base)
    if np.issubdtype(dtype, np.integer):
        real = (nodes.cast(each, np.float64) for each in (base, exponent))
        return (nodes.cast(nodes.op("Pow", *real), dtype),)
    if dtype == node.dtype(exponent):
        return old_broadcast(node, nodes)
    return (nodes.op("Pow", base, nodes.cast(exponent, dtype)),)


def dropout(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Dropout at inference: the identity; the mask keeps everything."""
    training = node.constant(2)
    if node.input(2) and (training is None or training.any()):
        ratio = node.constant(1)
        if ratio is None or ratio.any():
            raise node.refusal("it is in training mode; export the model for inference")
    if not node.wants(1):
        return (node.inputs[0],)
    mask = np.ones(node.shape(node.inputs[0]), bool)
    return node.inputs[0], nodes.constant(mask, np.bool_)


def scaler(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """Scaler of ONNX-ML: (x - offset) * scale in float32, by feature."""
    x = node.inputs[0]
    if node.dtype(x) != np.float32:
        x = nodes.cast(x, np.float32)
    offset, scale = (
        nodes.constant(np.asarray(node.attributes.get(name, default)), np.float32)
        for name, default in (("offset", [0.0]), ("scale", [1.0]))
    )
    return (nodes.op("Mul", nodes.op("Sub", x, offset), scale),)
