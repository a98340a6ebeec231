"""The parts of every attention: heads, their scores, what may be seen, what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def in_heads(nodes: Nodes, value: str, batch: int, length: int, heads: int) -> str:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    return nodes.op("Transpose", nodes.reshape(value, batch, length, heads, -1), perm=(0, 2, 1, 3))


def out_of_heads(nodes: Nodes, value: str, batch: int, length: int) -> str:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    return nodes.reshape(nodes.op("Transpose", value, perm=(0, 2, 1, 3)), batch, length, -1)


def attended(
    node: OperatorNode,
    nodes: Nodes,
    query: str,
    key: str,
    value: str,
    *,
    size: int,
    masks: Sequence[str],
    softcap: float = 0.0,
) -> str:
    """softmax(query * key^T * scale + masks) * value.

    Parameters
    ----------
    node : OperatorNode
        Its ``scale`` is 1 / sqrt(size) unless it says otherwise.
    query : str
        [batch, heads, length, size].
    key, value : str
        [batch, heads, total, size]; the size of the values may be another.
    masks : sequence of str
        Added to the scores, which are [batch, heads, length, total].
    softcap : float
        Scores stay within it by a hyperbolic tangent, before the masks; 0 is no limit.
    """
    dtype = node.dtype(node.inputs[0]) if node.kind != "QAttention" else np.dtype(np.float32)
    scale = node.attributes.get("scale", 0.0) or 1 / sqrt(size)
    scaled = nodes.op("Mul", query, nodes.constant(scale, dtype))
    scores = nodes.op("MatMul", scaled, nodes.op("Transpose", key, perm=(0, 1, 3, 2)))
    if softcap:
        cap = nodes.constant(softcap, dtype)
        scores = nodes.op("Mul", nodes.op("Tanh", nodes.op("Div", scores, cap)), cap)
    for mask in masks:
        scores = nodes.op("Add", scores, mask)
    return nodes.op("MatMul", nodes.op("Softmax", scores, axis=-1), value)


def causal_mask(nodes: Nodes, length: int, total: int, dtype: np.dtype) -> str:
    """A query sees the keys up to its own; the queries are the last of them."""
    behind = np.arange(total) > np.arange(total - length, total)[:, None]
    lowest = np.finfo(dtype).min
    return nodes.constant(np.where(behind, lowest, 0)[None, None], dtype)


def padding_mask(
    node: OperatorNode, nodes: Nodes, mask: str, length: int, total: int, dtype: np.dtype
) -> str:
    """What to add to the scores for a mask of com.microsoft's operators.

    It is [batch] (how many keys there are), [2 * batch] (their ends, then their beginnings), or of
    zeros at the keys that are left out: [batch, total], [batch, length, total],
    [batch, 1, longest, longest].
    """
    shape = node.shape(mask)
    if len(shape) == 1:
        seen = _seen_by_lengths(node, nodes, mask, total)
    else:
        seen = nodes.cast(mask, np.bool_)
        if len(shape) == 4:
            seen = nodes.slice(nodes.slice(seen, 2, total - length, total), 3, 0, total)
        else:
            seen = nodes.reshape(seen, shape[0], 1, *([1] if len(shape) == 2 else []), *shape[1:])
    kept, left_out = (
        nodes.constant(number, dtype)
        for number in (0, node.attributes.get("mask_filter_value", -10000.0))
    )
    return nodes.op("Where", seen, kept, left_out)


def _seen_by_lengths(node: OperatorNode, nodes: Nodes, mask: str, total: int) -> str:
    """[batch, 1, 1, total] from the ends, and the beginnings, of the keys."""
    batch = node.shape(node.inputs[0])[0]
    (count,) = node.shape(mask)
    if count not in (batch, 2 * batch):
        raise node.refusal(f"its mask has {count} elements for {batch} sequences")
    places = nodes.constant(np.arange(total)[None, None, None], np.int64)
    parts = nodes.split(nodes.cast(mask, np.int64), 0, count // batch)
    ends = nodes.reshape(parts[0], batch, 1, 1, 1)
    seen = nodes.op("Less", places, ends)
    if len(parts) == 2:
        begins = nodes.reshape(parts[1], batch, 1, 1, 1)
        seen = nodes.op("And", seen, nodes.op("Not", nodes.op("Less", places, begins)))
    return seen
