"""Reductions without axes that reduce nothing, of truth values, of integers, and of products."""

from __future__ import annotations

from collections import Counter
from string import ascii_letters

import numpy as np

from tvm_rammer.frontend.onnx.infer import static_shape
from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

#: Reductions that do something to each element, whether they reduce or not.
_EACH = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}
#: Reductions that are no integers on the way to one.
_FRACTIONS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean")


def reduction(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """A reduction that ``noop_with_empty_axes`` makes elementwise, or one not of floats."""
    x = node.inputs[0]
    if not _reduces_nothing(node):
        rules = (_of_truth_values, _of_integers, _mean_of_nothing)
        return next((made for rule in rules if (made := rule(node, nodes)) is not None), None)
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
    # Of nothing the largest is the least there is: false.
    numbers = nodes.op(node.kind, nodes.cast(x, np.uint8), *axes, **node.attributes)
    return (nodes.cast(numbers, np.bool_),)


def _of_integers(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    x, *axes = node.inputs
    if node.kind not in _FRACTIONS or not np.issubdtype(node.dtype(x), np.integer):
        return None
    # What is behind the point is cut off, as ONNX Runtime does.
    real = nodes.op(node.kind, nodes.cast(x, np.float64), *axes, **node.attributes)
    return (nodes.cast(real, node.dtype(x)),)


def _mean_of_nothing(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """The mean of nothing, which is no number; TVM would divide by none."""
    x = node.inputs[0]
    shape = static_shape(node.types.get(x))
    if node.kind != "ReduceMean" or shape is None or 0 not in shape:
        return None
    given = node.attributes.get("axes", node.constant(1))
    axes = range(len(shape)) if given is None or not len(given) else given
    reduced = {int(axis) % len(shape) for axis in axes}
    kept = [1 if k in reduced else n for k, n in enumerate(shape)]
    if not node.attributes.get("keepdims", 1):
        kept = [n for k, n in enumerate(shape) if k not in reduced]
    return (nodes.constant(np.full(kept, np.nan), node.dtype(x)),)


def einsum(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Einsum of three operands or more: of pairs, in the order that numpy finds the cheapest.

    TVM would sum up products of all of them, which is more to compute and no product of matrices.
    One with an ellipsis stays as it is.
    """
    equation = node.attributes["equation"].decode().replace(" ", "")
    given, arrow, result = equation.partition("->")
    terms, operands = given.split(","), list(node.inputs)
    if len(operands) < 3 or "." in equation or len(terms) != len(operands):
        return None
    if not arrow:
        counts = Counter(given)
        result = "".join(c for c in sorted(counts) if c in ascii_letters and counts[c] == 1)
    shapes = [np.broadcast_to(np.float32(0), node.shape(operand)) for operand in operands]
    (_, *steps), _ = np.einsum_path(f"{given}->{result}", *shapes, optimize="greedy")
    rest = list(zip(terms, operands, strict=True))
    for step in steps:
        term, operand = rest[step[0]]
        together = [rest[place] for place in step[1:]]
        rest = [each for place, each in enumerate(rest) if place not in step]
        while together:
            other, factor = together.pop(0)
            later = {*result, *"".join(letters for letters, _ in (*rest, *together))}
            longer, shorter = sorted((term, other), key=len, reverse=True)
            kept = "".join(c for c in dict.fromkeys(longer + shorter) if c in later)
            kept = kept if rest or together else result
            operand = nodes.op("Einsum", operand, factor, equation=f"{term},{other}->{kept}")
            term = kept
        rest.append((term, operand))
    return (operand,)
