"""RotaryEmbedding of com.microsoft: pairs of a head's elements are turned by their position."""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.heads import in_heads, out_of_heads
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def rotary_embedding(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """RotaryEmbedding of [batch, length, heads * size] or [batch, heads, length, size]."""
    x, positions, cosines, sines = node.inputs
    shape = node.shape(x)
    if node.attributes.get("is_packed_batching", 0):
        raise node.refusal("its batch is packed")
    rotated = 2 * node.shape(cosines)[1]
    if len(shape) == 4:
        batch, heads, length, size = shape
        inside = x
    else:
        batch, length, width = shape
        heads = node.attributes.get("num_heads", 0) or width // rotated
        size = width // heads
        inside = in_heads(nodes, x, batch, length, heads)
    if node.shape(positions) in ((), (1,)):
        steps = nodes.constant(np.arange(length)[None], np.int64)
        positions = nodes.op("Add", nodes.reshape(positions, 1, 1), steps)
    angles = at_positions(nodes, cosines, sines, positions, length, rotated // 2)
    interleaved = bool(node.attributes.get("interleaved", 0))
    result = turned(nodes, inside, (batch, heads, length, size), angles, rotated, interleaved)
    return (result if len(shape) == 4 else out_of_heads(nodes, result, batch, length),)


def at_positions(
    nodes: Nodes, cosines: str, sines: str, positions: str, length: int, pairs: int
) -> tuple[str, str]:
    """Cosines and sines [batch, 1, length, pairs] of positions [batch, length]."""
    first, second = (
        nodes.reshape(nodes.op("Gather", table, positions), -1, 1, length, pairs)
        for table in (cosines, sines)
    )
    return first, second


def turned(
    nodes: Nodes,
    value: str,
    shape: tuple[int, int, int, int],
    angles: tuple[str, str],
    rotated: int,
    interleaved: bool,
) -> str:
    """A tensor [batch, heads, length, size] with its first ``rotated`` elements turned.

    A pair is of neighbours if ``interleaved``, else of the same place in both halves.
    """
    *outer, size = shape
    inside, rest = (
        (value, "") if rotated == size else nodes.split_at(value, 3, [rotated, size - rotated])
    )
    pairs = rotated // 2
    split = (*outer, pairs, 2) if interleaved else (*outer, 2, pairs)
    axis = 4 if interleaved else 3
    halves = nodes.split(nodes.reshape(inside, *split), axis, 2)
    left, right = (nodes.reshape(half, *outer, pairs) for half in halves)
    cosines, sines = angles
    real = nodes.op("Sub", nodes.op("Mul", left, cosines), nodes.op("Mul", right, sines))
    imaginary = nodes.op("Add", nodes.op("Mul", left, sines), nodes.op("Mul", right, cosines))
    if interleaved:
        columns = (nodes.reshape(part, *outer, pairs, 1) for part in (real, imaginary))
        joined = nodes.reshape(nodes.op("Concat", *columns, axis=4), *outer, rotated)
        parts = [joined]
    else:
        parts = [real, imaginary]
    if rest:
        parts.append(rest)
    return parts[0] if len(parts) == 1 else nodes.op("Concat", *parts, axis=3)
