"""The attentions of com.microsoft that encoders and older decoders have."""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.heads import (
    attended,
    causal_mask,
    in_heads,
    out_of_heads,
    padding_mask,
)
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def attention(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """Attention: one product makes queries, keys and values."""
    x, weights = node.inputs[:2]
    projected = nodes.op("MatMul", x, weights)
    if node.input(2):
        projected = nodes.op("Add", projected, node.input(2))
    widths = node.attributes.get("qkv_hidden_sizes") or [node.shape(weights)[1] // 3] * 3
    if node.input(6):
        raise node.refusal("its past shares a buffer with its present (past_sequence_length)")
    return _of_projected(
        node, nodes, projected, widths, node.input(3), node.input(4), node.input(5)
    )


def quantized_attention(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """QAttention: the product is one of integers."""
    x, weights, bias, x_scale, w_scale = node.inputs[:5]
    projected = nodes.op(
        "MatMulIntegerToFloat",
        x,
        weights,
        x_scale,
        w_scale,
        node.input(6),
        node.input(7),
        bias,
        domain="com.microsoft",
    )
    widths = [node.shape(weights)[1] // 3] * 3
    return _of_projected(node, nodes, projected, widths, node.input(5), node.input(8), "")


def _of_projected(
    node: OperatorNode,
    nodes: Nodes,
    projected: str,
    widths: list[int],
    mask: str,
    past: str,
    bias: str,
) -> tuple[str, ...]:
    if node.attributes.get("do_rotary", 0):
        raise node.refusal("it rotates its queries and keys (do_rotary)")
    heads = node.attributes["num_heads"]
    batch, length, _ = node.shape(node.inputs[0])
    query, key, value = (
        in_heads(nodes, part, batch, length, heads)
        for part in nodes.split_at(projected, 2, list(widths))
    )
    total, present = length, ""
    if past:
        total += node.shape(past)[3]
        old_key, old_value = (
            nodes.reshape(part, batch, heads, total - length, -1)
            for part in nodes.split(past, 0, 2)
        )
        key = nodes.op("Concat", old_key, key, axis=2)
        value = nodes.op("Concat", old_value, value, axis=2)
    if node.wants(1):
        parts = (nodes.reshape(part, 1, batch, heads, total, -1) for part in (key, value))
        present = nodes.op("Concat", *parts, axis=0)
    masks = _masks(node, nodes, mask, bias, length, total)
    size = widths[0] // heads
    result = attended(node, nodes, query, key, value, size=size, masks=masks)
    return out_of_heads(nodes, result, batch, length), present


def multi_head_attention(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """MultiHeadAttention: queries, keys and values are given, in one tensor, two or three."""
    heads = node.attributes["num_heads"]
    query, key, value = _given(node, nodes, heads)
    batch, length = node.shape(node.inputs[0])[:2]
    size = _head_size(node, heads)
    past = node.input(6)
    total = _keys(node)
    if past:
        total += node.shape(past)[2]
        key = nodes.op("Concat", past, key, axis=2)
        value = nodes.op("Concat", node.input(7), value, axis=2)
    if node.input(8) or node.input(9):
        raise node.refusal("its past shares a buffer with its present (past_sequence_length)")
    if node.wants(3):
        raise node.refusal("its scores (the fourth result) are read")
    masks = _masks(node, nodes, node.input(4), node.input(5), length, total)
    result = attended(node, nodes, query, key, value, size=size, masks=masks)
    return out_of_heads(nodes, result, batch, length), key, value


def _given(node: OperatorNode, nodes: Nodes, heads: int) -> tuple[str, str, str]:
    """Queries, keys and values in heads, their biases added."""
    query, key, value = node.inputs[0], node.input(1), node.input(2)
    batch, length = node.shape(query)[:2]
    if len(node.shape(query)) == 5:
        parts = (nodes.reshape(p, batch, length, -1) for p in nodes.split(query, 3, 3))
        query, key, value = parts
    elif len(node.shape(key)) == 5:
        keys = node.shape(key)[1]
        key, value = (nodes.reshape(p, batch, keys, -1) for p in nodes.split(key, 3, 2))
    biases = ("", "", "")
    if bias := node.input(3):
        width = heads * _head_size(node, heads)
        sizes = [width, width, node.shape(bias)[0] - 2 * width]
        biases = tuple(nodes.split_at(bias, 0, sizes))  # type: ignore[assignment]
    placed = zip((query, key, value), biases, (length, _keys(node), _keys(node)), strict=True)
    in_place = len(node.shape(node.input(1))) == 4 if node.input(1) else False
    made = []
    for number, (part, bias, count) in enumerate(placed):
        if number and in_place:
            if bias:
                raise node.refusal("its keys are in heads already and have a bias")
            made.append(part)
            continue
        total = nodes.op("Add", part, bias) if bias else part
        made.append(in_heads(nodes, total, batch, count, heads))
    query, key, value = made
    return query, key, value


def _head_size(node: OperatorNode, heads: int) -> int:
    shape = node.shape(node.inputs[0])
    return shape[4] if len(shape) == 5 else shape[2] // heads


def _keys(node: OperatorNode) -> int:
    """How many keys are given."""
    if not node.input(1):
        return node.shape(node.inputs[0])[1]
    shape = node.shape(node.input(1))
    return shape[2] if len(shape) == 4 else shape[1]


def _masks(
    node: OperatorNode, nodes: Nodes, mask: str, bias: str, length: int, total: int
) -> list[str]:
    quantized = node.kind == "QAttention"
    dtype = np.dtype(np.float32) if quantized else node.dtype(node.inputs[0])
    masks = [bias] if bias else []
    if mask:
        masks.append(padding_mask(node, nodes, mask, length, total, dtype))
    if node.attributes.get("unidirectional", 0):
        masks.append(causal_mask(nodes, length, total, dtype))
    return masks
