"""Sums of products of many tensors, two at a time."""

from __future__ import annotations

from collections import Counter
from string import ascii_letters

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


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
