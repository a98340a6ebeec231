"""Reductions without axes that reduce nothing, and of truth values."""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

#: Reductions that do something to each element, whether they reduce or not.
_EACH = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}


def reduction(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """A reduction that ``noop_with_empty_axes`` makes elementwise, or one of truth values."""
    x = node.inputs[0]
    if not _reduces_nothing(node):
        return _of_truth_values(node, nodes)
    if node.kind == "ReduceSumSquare":
        return (nodes.op("Mul", x, x),)
    return (nodes.op(_EACH[node.kind], x) if node.kind in _EACH else x,)


def _reduces_nothing(node: OperatorNode) -> bool:
    axes = node.constant(1)
    if not node.attributes.get("noop_with_empty_axes", 0) or (axes is not None and axes.size):
        return False
    if node.input(1) and axes is None:
        raise node.refusal("its axes are no constant")
    return True


def _of_truth_values(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    x, *axes = node.inputs
    if node.kind not in ("ReduceMax", "ReduceMin") or node.dtype(x) != np.bool_:
        return None
    numbers = nodes.op(node.kind, nodes.cast(x, np.int32), *axes, **node.attributes)
    return (nodes.cast(numbers, np.bool_),)
