"""GroupQueryAttention of com.microsoft: what exporters of decoders write.

Several heads of queries share one of keys. The keys of earlier steps come in, ``seqlens_k`` says
for each sequence how many there are with the new ones, less one.
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.caches import written
from tvm_rammer.frontend.onnx.operators.heads import attended, in_heads, out_of_heads
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode
from tvm_rammer.frontend.onnx.operators.rotary import at_positions, turned


def group_query_attention(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """GroupQueryAttention, with positions turned if ``do_rotary`` says so."""
    _refuse_rare(node)
    heads, groups = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    batch, length, width = node.shape(node.inputs[0])
    query, key, value = node.inputs[:3]
    if not key:
        size = width // (heads + 2 * groups)
        widths = [heads * size, groups * size, groups * size]
        query, key, value = nodes.split_at(query, 2, widths)
    else:
        size = width // heads
    query = in_heads(nodes, query, batch, length, heads)
    key, value = (in_heads(nodes, part, batch, length, groups) for part in (key, value))
    before = _before(node, nodes, batch, length)
    steps = nodes.constant(np.arange(length)[None], np.int64)
    places = nodes.op("Add", before, steps)
    if node.attributes.get("do_rotary", 0):
        positions = nodes.cast(node.input(9), np.int64) if node.input(9) else places
        pairs = node.shape(node.input(7))[1]
        rotated = 2 * pairs
        angles = at_positions(nodes, node.input(7), node.input(8), positions, length, pairs)
        interleaved = bool(node.attributes.get("rotary_interleaved", 0))
        query = turned(nodes, query, (batch, heads, length, size), angles, rotated, interleaved)
        key = turned(nodes, key, (batch, groups, length, size), angles, rotated, interleaved)
    old = node.shape(node.input(3))[2] if node.input(3) else 0
    total = max(old, _total(node, length))
    sizes = (batch, groups, old, length, total, size)
    key = _appended(node, nodes, node.input(3), key, before, sizes)
    value = _appended(node, nodes, node.input(4), value, before, sizes)
    masks = [_causal(node, nodes, places, (batch, length, total))]
    if node.input(10):
        masks.append(node.input(10))
    result = attended(
        node,
        nodes,
        query,
        _repeated(nodes, key, (batch, groups, total, size), heads // groups),
        _repeated(nodes, value, (batch, groups, total, size), heads // groups),
        size=size,
        masks=masks,
        softcap=node.attributes.get("softcap", 0.0),
    )
    return out_of_heads(nodes, result, batch, length), key, value


def _refuse_rare(node: OperatorNode) -> None:
    for name in ("smooth_softmax", "k_quant_type", "v_quant_type"):
        if node.attributes.get(name, 0) not in (0, -1, b"NONE"):
            raise node.refusal(f"it has {name}={node.attributes[name]}")
    if node.input(11):
        raise node.refusal("it has sinks (head_sink)")
    if node.wants(3):
        raise node.refusal("its scores (the fourth result) are read")


def _total(node: OperatorNode, length: int) -> int:
    """The longest sequence, with its new keys."""
    if not node.input(3) or not node.shape(node.input(3))[2]:
        return length
    return int(node.needed_constant(6, "total_sequence_length").reshape(()))


def _before(node: OperatorNode, nodes: Nodes, batch: int, length: int) -> str:
    """How many keys each sequence had before, [batch, 1]; a prompt has none."""
    if _total(node, length) == length:
        return nodes.constant(np.zeros((batch, 1)), np.int64)
    last = nodes.reshape(nodes.cast(node.inputs[5], np.int64), batch, 1)
    return nodes.op("Sub", last, nodes.constant(length - 1, np.int64))


def _appended(
    node: OperatorNode,
    nodes: Nodes,
    past: str,
    new: str,
    before: str,
    sizes: tuple[int, int, int, int, int, int],
) -> str:
    """The new keys behind those of before, [batch, groups, total, size]."""
    batch, groups, old, length, total, size = sizes
    if not past or not old:
        return new
    # What is behind them is zero, but in one buffer for what was and what is: there it stays.
    if past not in node.states or old < total:
        dtype = node.dtype(past)
        places = nodes.constant(np.arange(total)[None], np.int64)
        there = nodes.reshape(nodes.op("Less", places, before), batch, 1, total, 1)
        if old < total:
            room = nodes.constant(np.zeros((batch, groups, total - old, size)), dtype)
            past = nodes.op("Concat", past, room, axis=2)
        past = nodes.op("Where", there, past, nodes.constant(0, dtype))
    return written(nodes, past, new, before, ((batch, groups, total, size), length, 2))


def _causal(node: OperatorNode, nodes: Nodes, places: str, sizes: tuple[int, int, int]) -> str:
    """A query sees the keys up to its own place, and not more than the window before it."""
    batch, length, total = sizes
    dtype = node.dtype(node.inputs[0])
    own = nodes.reshape(places, batch, 1, length, 1)
    keys = nodes.constant(np.arange(total)[None, None, None], np.int64)
    hidden = nodes.op("Greater", keys, own)
    window = node.attributes.get("local_window_size", -1)
    if window > 0:
        first = nodes.op("Sub", own, nodes.constant(window - 1, np.int64))
        hidden = nodes.op("Or", hidden, nodes.op("Less", keys, first))
    lowest, zero = (nodes.constant(number, dtype) for number in (np.finfo(dtype).min, 0))
    return nodes.op("Where", hidden, lowest, zero)


def _repeated(nodes: Nodes, value: str, shape: tuple[int, int, int, int], count: int) -> str:
    """Each head so many times."""
    if count == 1:
        return value
    batch, groups, total, size = shape
    wide = nodes.reshape(value, batch, groups, 1, total, size)
    sizes = nodes.constant((batch, groups, count, total, size), np.int64)
    return nodes.reshape(nodes.op("Expand", wide, sizes), batch, groups * count, total, size)
